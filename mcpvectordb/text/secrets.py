"""Secrets in text, left out before it is stored: keys, tokens, passwords, <private> parts.

What memories store comes from conversations, where people paste what they would never file. A
secret is known by its shape (a GitHub token, a private key block), by what stands before it
(`password=`, `Authorization: Bearer`, `https://user:…@`), or by the tags <private> and </private>.
In its place stays a marker that says of what kind it was: [redacted: GitHub token].

Every pass over the text is linear: the patterns run in RE2, or find deterministic runs of bounded
length. Redacting twice is the same as once: what stands in a marker is no secret.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import re2

# Shapes that say by themselves what they are. Only the last part of one may have any length: a
# match consumes what was looked at.
_SHAPES: Mapping[str, str] = {
    "AWS key": r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b(?:\s{0,2}[,;:]\s{0,2}[\w/+=]{40}\b)?",
    "GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}",
    "GitLab token": r"\bgl(?:pat|ptt|dt|rt|soat|cbt|ft|imt|agent)-[\w-]{20,}",
    "Anthropic key": r"\bsk-ant-[\w-]{20,}",
    "OpenAI key": r"\bsk-(?:proj|svcacct|admin|or-v1)-[\w-]{20,}|\bsk-[A-Za-z0-9]{32,}",
    "Google key": r"\bAIza[\w-]{35}|\bGOCSPX-[\w-]{20,}|\bya29\.[\w-]{30,}|\b1//0[\w-]{40,}",
    "Slack token": r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{20,}"
    r"|\bhooks\.slack\.com/(?:services|workflows)/[\w/]{30,}",
    "Stripe key": r"\b[rs]k_(?:live|test)_\w{16,}|\bwhsec_[\w+/=]{24,}",
    "Twilio key": r"\bSK[0-9a-f]{32}\b",
    "SendGrid key": r"\bSG\.[\w-]{22}\.[\w-]{43}",
    "Mailgun key": r"\bkey-[0-9a-f]{32}\b",
    "Mailchimp key": r"\b[0-9a-f]{32}-us\d{1,2}\b",
    "Telegram token": r"\b\d{8,10}:AA[\w-]{32,}",
    "Discord token": r"\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"
    r"|\bdiscord(?:app)?\.com/api/webhooks/\d{15,20}/[\w-]{40,}",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}",
    "PyPI token": r"\bpypi-[\w-]{50,}",
    "RubyGems key": r"\brubygems_[0-9a-f]{48}",
    "Docker token": r"\bdckr_(?:pat|oat)_[\w-]{20,}",
    "Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z]{30,}|\bhf_[A-Za-z0-9]{30,}",
    "model key": r"\bgsk_\w{40,}|\bxai-\w{40,}|\bpplx-\w{40,}|\br8_\w{30,}|\bnvapi-[\w-]{40,}",
    "Vault token": r"\bhv[sbr]\.[\w-]{24,}",
    "DigitalOcean token": r"\bdo[opr]_v1_[0-9a-f]{60,}",
    "Shopify token": r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "Square token": r"\bsq0[a-z]{3}-[\w-]{22,}",
    "Databricks token": r"\bdapi[0-9a-f]{32}",
    "Atlassian token": r"\bATATT3[\w=-]{50,}",
    "Linear key": r"\blin_(?:api|oauth)_\w{32,}",
    "Notion token": r"\bntn_\w{40,}|\bsecret_[A-Za-z0-9]{43}\b",
    "Postman key": r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}",
    "New Relic key": r"\bNRAK-[A-Z0-9]{27}",
    "Sentry token": r"\bsntry[su]_[\w+/=-]{40,}",
    "Grafana token": r"\bgl(?:sa|c)_[\w+/=]{32,}",
    "Supabase token": r"\bsb[ps]_[0-9a-f]{40}|\bsb_secret_[\w-]{20,}",
    "Tailscale key": r"\btskey-[a-z]+-[\w-]{20,}",
    "PlanetScale token": r"\bpscale_(?:tkn|pw|oauth)_[\w.-]{32,}",
    "Pulumi token": r"\bpul-[0-9a-f]{40}",
    "Terraform token": r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}",
    "Alibaba key": r"\bLTAI[A-Za-z0-9]{16,20}\b",
    "Doppler token": r"\bdp\.(?:pt|st|ct|sa)\.[\w.-]{40,}",
    "age key": r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}",
    "Nostr key": r"\bnsec1[02-9ac-hj-np-z]{58}\b",
    "JWT": r"\beyJ[\w-]{10,}[\w.-]*",
    # The beginning of a private key in Base64: of a certificate it goes on with DRVJU.
    "private key": r"\bLS0tLS1CRUdJTi[A-Za-z0-9/+=]{100,}|\bPrivate-Lines: \d+\s+[\w/+=\s]{40,}",
    "Azure key": r"(?:AccountKey|SharedAccessKey|SharedSecret)=[\w/+]{40,}={0,2}"
    r"|[?&]sig=[\w%/+-]{40,}={0,2}",
}

# What stands before a secret. The groups: the name that it is given, what ties both together.
_WORDS_BEFORE = (
    "pass(?:word|wd|phrase|code)|pwd|pass[_-]key|passwort|kennwort|mot de passe|contraseña|senha"
    "|wachtwoord|пароль|密码|パスワード"
)
_KEY = (
    "(?:api|access|private|secret|account|auth|encryption|signing|master|storage|shared|app|bot"
    "|deploy|license|subscription|service|admin|root)[ _-]?key"
)
_NAMES = f"{_WORDS_BEFORE}|secret|token|credentials?|{_KEY}|conn(?:ection)?[_-]?str(?:ing)?"
_TIE = "|".join(
    (
        r"""["'`*]{0,3}[ \t]{0,4}(?::=|=>|===?|=|:)[*]{0,2}[ \t]{0,4}""",
        r"""["'`*]{0,3}(?: (?:for|of|on|at|für|von) [^\s.:=]{1,30}(?: [^\s.:=]{1,30})?)?"""
        r"""(?: (?:is|ist|was|to)(?: now)?:?|:) """,
        r"""[ \t]{1,4}""",
    )
)
_CONTEXT = "|".join(
    (
        rf"(?P<name>(?:{_NAMES})s?(?:[_-][A-Za-z0-9]{{1,20}}){{0,3}})(?P<tie>{_TIE})",
        r"""(?P<header>\bauthorization["']?[ \t]{0,4}[:=][ \t]{0,4}["']?"""
        r"""(?:bearer |basic |token )?|\bbearer[ \t]{1,4})""",
        r"""(?P<cookie>\b(?:set-)?cookie["']?:[ \t]{0,4})""",
        r"""(?P<url>\b[a-z][a-z0-9+.-]{1,20}://[^\s/@:?#"'<>]{0,80}:)""",
        r"""(?P<command>\bcurl [^\n|]{0,80}?(?:-u|--user|--proxy-user)[ =]{1,4}["']?"""
        r"""[^\s:"']{1,80}:|\bsshpass +-p ?|\bmysql\w{0,6} [^\n|]{0,80}? -p)""",
    )
)
_QUOTED = {mark: re.compile(rf"[^{mark}\n\\]*+(?:\\.[^{mark}\n\\]*+)*+{mark}") for mark in "\"'`"}
_BARE = re.compile(r"[^\s\"'`,;<>(){}\[\]|]{1,1000}")
_LONGEST_QUOTED = 4_000
_BLOCK = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Lines of a block whose end is missing.
_BODY = re.compile(r"(?:(?:\s|\\[rn])*+[A-Za-z0-9+/=]{20,})*+(?:(?:\s|\\[rn])?[A-Za-z0-9+/=]+)?")
_SHORTEST_KEY = 40
_JWT = re.compile(r"[\w-]+\.[\w-]{4,}\.[\w-]*")
_TAG = re.compile(r"(`?)<(/?)private>", re.IGNORECASE)

# Names that end so hold something about a secret, not the secret.
_ABOUT = frozenset(
    "id ids name names type types count counts file files path paths url uri field fields length "
    "len size limit limits env var expires expiry expiration ttl usage used policy rule rules "
    "prompt hint label manager provider store service class format hash algorithm prefix suffix "
    "index start end starts ends pattern regex required min max budget rate reset version ref arn "
    "header param scope scopes endpoint list map set status state text title".split()
)
_NO_SECRET = re.compile(
    r"(?i)(?:your|my|the|some|an?|new|old|this|that|example|sample|dummy|fake|placeholder|changeme"
    r"|change_?me|xxx|todo|fixme|none|null|nil|true|false|undefined|string|str|bytes|int|bool|any"
    r"|optional|required|redacted|hidden|masked|insert|enter|type|input|replace|get|set|env|process"
    r"|os|config|settings|self|this|req|request|response|args|kwargs|options|params|var|vault"
    r"|secrets?|tokens?|keys?|credentials?|pass\w{0,5}|pwd|foo|bar|baz|abc|test)"
    r"(?:$|[\s_.,:?<{(\[-].*)"
)
_WORDS = re.compile(r"(?:[A-Za-z]*[a-z]{2}[a-z]*|[A-Z]+|\d{1,5}|[A-Za-z])")
_VARIABLE = re.compile(r"\$[A-Za-z_]\w*$|\$\{|\$\(|\{|%[({A-Za-z]|<|#\{|@[A-Za-z]|&[a-z_]")
_PLACE = re.compile(r"(?:[a-zA-Z][\w+.-]*://|~?\.{0,2}/|[A-Za-z]:\\)")
_SPOKEN_OF = re.compile("(?i)pass|pwd|secret|token|key|field|input|label")
_CODE_AFTER = ("(", "[", "{")


class Redacted(NamedTuple):
    """A text without its secrets, and of what kind each was that was left out, in their order."""

    text: str
    kinds: tuple[str, ...] = ()


class _Secret(NamedTuple):
    start: int
    end: int
    kind: str


def redacted(text: str) -> Redacted:
    """The text with a marker such as [redacted: AWS key] in the place of each secret."""
    found = sorted(_secrets(text))
    if not found:
        return Redacted(text)
    parts, kinds, place = [], [], 0
    for secret in found:
        if secret.start >= place:
            parts += [text[place : secret.start], f"[redacted: {secret.kind}]"]
            kinds.append(secret.kind)
        place = max(place, secret.end)
    return Redacted("".join([*parts, text[place:]]), tuple(kinds))


def redacted_values(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A JSON object without the secrets in its strings, and their kinds."""
    kinds: list[str] = []

    def clean(value: Any, name: str) -> Any:
        if isinstance(value, Mapping):
            return {key: clean(each, str(key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [clean(each, name) for each in value]
        if not isinstance(value, str):
            return value
        # The name counts as it does in a text.
        before = f"{name}: "
        whole = redacted(before + value) if len(name) < 100 else redacted(value)
        if not whole.text.startswith(before):
            whole = redacted(value)
        kinds.extend(whole.kinds)
        return whole.text.removeprefix(before) if whole.kinds else value

    return clean(values, ""), tuple(kinds)


def _secrets(text: str) -> Iterator[_Secret]:
    yield from _private(text)
    yield from _blocks(text)
    try:
        scanned = text
        text.encode()
    except UnicodeEncodeError:  # halves of surrogate pairs, which RE2 does not take
        scanned = text.encode("utf-8", "replace").decode()
    shapes, context = _patterns()
    for found in shapes.finditer(scanned):
        kind = next(name for name, number in _GROUPS.items() if found.span(number)[0] >= 0)
        if kind != "JWT" or _JWT.match(found[0]):
            yield _Secret(found.start(), found.end(), kind)
    for found in context.finditer(scanned):
        secret = _after(scanned, found)
        if secret is not None:
            yield secret


_GROUPS = {name: number for number, name in enumerate(_SHAPES, 1)}


@functools.cache
def _patterns() -> tuple[re2._Regexp, re2._Regexp]:
    import re2

    options = re2.Options()
    options.max_mem, options.log_errors = 64 << 20, False
    shapes = "|".join(f"({shape})" for shape in _SHAPES.values())
    return re2.compile(shapes, options), re2.compile(f"(?i){_CONTEXT}", options)


def _private(text: str) -> Iterator[_Secret]:
    """What stands between <private> and </private>.

    A tag in backticks is only spoken of. Where one at the beginning of a line is never closed, all
    that follows is private.
    """
    depth = start = 0
    for tag in _TAG.finditer(text):
        if tag[1]:
            continue
        if not tag[2]:
            start, depth = start if depth else tag.start(), depth + 1
        elif depth:
            depth -= 1
            if not depth:
                yield _Secret(start, tag.end(), "private")
    if depth and text[:start].rstrip(" \t")[-1:] in ("", "\n"):
        yield _Secret(start, len(text), "private")


def _blocks(text: str) -> Iterator[_Secret]:
    """Private keys from their first line to their last, or as far as they go."""
    marks = list(_BLOCK.finditer(text)) if "PRIVATE KEY" in text else []
    for number, mark in enumerate(marks):
        if mark[1] == "END":
            continue
        after = marks[number + 1] if number + 1 < len(marks) else None
        if after is not None and after[1] == "END":
            if after.start() - mark.end() >= _SHORTEST_KEY:  # and not only named
                yield _Secret(mark.start(), after.end(), "private key")
        else:
            body = _BODY.match(text, mark.end(), after.start() if after else len(text))
            assert body is not None, "it matches nothing, too"  # noqa: S101
            if len(body[0].strip()) >= _SHORTEST_KEY:
                yield _Secret(mark.start(), body.end(), "private key")


_URL_PASSWORD = re.compile(r"[^\s/\"'<>`]{1,300}@")
_TOKEN = re.compile(r"[\w.~+/=-]{12,}")
_COOKIES = re.compile(r"[\w.-]{1,80}=[^\s;\"'`]{8,4000}(?:; ?[^\r\n\"'`]{1,4000})?")
_TRAILING = ".,;:!?*…"


def _after(text: str, found: re2._Match) -> _Secret | None:
    """The secret that stands after what announces one, if it looks like one."""
    at, what = found.end(), next(name for name in _WHAT if found[name] is not None)
    if what == "name":
        return _named(text, found)
    if what == "url":
        password = _URL_PASSWORD.match(text, at)
        end = password.end() - 1 if password else at
        is_secret = end > at and not _is_placeholder(text[at:end])
        return _Secret(at, end, "password") if is_secret else None
    if what == "cookie":
        cookies = _COOKIES.match(text, at)
        return _Secret(at, cookies.end(), "cookie") if cookies else None
    if what == "header":
        token = _TOKEN.match(text, at)
        if token is None or _is_words(token[0]) or _is_placeholder(token[0]):
            return None
        return _Secret(at, token.end(), "token")
    value, start, end, _ = _value(text, at)
    return _Secret(start, end, "password") if value and not _is_placeholder(value) else None


_WHAT = ("name", "header", "cookie", "url", "command")


def _value(text: str, at: int) -> tuple[str, int, int, bool]:
    """A value, where it begins and ends, and whether it stands in quotes."""
    mark = text[at : at + 1]
    if mark in _QUOTED and mark:
        quoted = _QUOTED[mark].match(text, at + 1, at + 1 + _LONGEST_QUOTED)
        if quoted is not None:
            return quoted[0][:-1], at + 1, quoted.end() - 1, True
        at += 1
    bare = _BARE.match(text, at)
    value = bare[0].rstrip(_TRAILING) if bare else ""
    return value, at, at + len(value), False


def _named(text: str, found: re2._Match) -> _Secret | None:
    name, tie, (start, at) = found["name"], found["tie"].strip(" \t\"'`*"), found.span()
    before = text[max(0, start - 40) : start]
    about = re.split("[_-]", name.lower())
    if about[-1] in _ABOUT or before[-1:] == "$" or before[-2:] == "${":
        return None
    if not tie:  # a space: an option of a command, or a line of .netrc
        option = re.search(r"(?:^|\s)--?[\w-]*$", before) is not None
        if not option and re.search(r"login \S+\s+$", before) is None:
            return None
    value, start, end, quoted = _value(text, at)
    if before[-1:] in ("?", "&") and not quoted:
        value = value.partition("&")[0]
        end = start + len(value)
    if not quoted and text[end : end + 1] in _CODE_AFTER:
        return None  # a call, or an item of something
    variable = name.isupper() and found["tie"] == "="
    kind = _kind(name.lower())
    if not _is_value(value, kind, quoted=quoted, prose=tie[:1].isalpha(), sure=variable):
        return None
    return _Secret(start, end, kind)


@functools.cache
def _password_names() -> re.Pattern[str]:
    return re.compile(_WORDS_BEFORE)


def _kind(name: str) -> str:
    if _password_names().match(name):
        return "password"
    return "token" if name.startswith("token") else "key" if "key" in name else "secret"


def _is_value(value: str, kind: str, *, quoted: bool, prose: bool, sure: bool) -> bool:
    """Whether a value looks like the secret that its name says.

    `sure` is the line PASSWORD=… of an environment, where any word is one.
    """
    if len(value) < 4 or _is_placeholder(value) or any(each.isspace() for each in value):
        return False
    digits = any(each.isdigit() for each in value)
    letters = any(each.isalpha() for each in value)
    if kind == "password" and not _PLACE.match(value):
        if value.isdigit():
            return not prose
        mixed = len(value) >= 6 and letters and (digits or _has_symbol(value))
        if mixed and not (_is_words(value) and not quoted and not digits):
            return True
        said = value == value.upper() or _SPOKEN_OF.search(value)
        return (quoted or sure) and not prose and len(value) >= 6 and not said
    if sure and len(value) >= 8 and digits and not _PLACE.match(value):
        return True
    return (
        len(value) >= 12
        and digits
        and letters
        and not _PLACE.match(value)
        and not _is_words(value)
        and len(set(value)) >= 8
    )


def _is_placeholder(value: str) -> bool:
    """Whether a value only stands for a secret: a variable, xxxx, <password>, a marker."""
    if value.startswith("[redacted") or len(set(value)) < 3 or "..." in value or "…" in value:
        return True
    return _VARIABLE.match(value) is not None or _NO_SECRET.match(value) is not None


def _is_words(value: str) -> bool:
    """Whether all parts of a value are words and small numbers, as in names: sha256_of-file.2."""
    parts = re.findall(r"[A-Za-z]+|\d+|[^A-Za-z\d]+", value)
    return (
        all(_WORDS.fullmatch(part) or not part.isalnum() for part in parts)
        and len(parts) <= 3 + len(value) // 4
    )


def _has_symbol(value: str) -> bool:
    return any(each in "!@#$%^&*+=?~" for each in value)
