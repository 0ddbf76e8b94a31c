"""Files with secrets, recognised by their place, their name and their content.

Neither an agent nor the sync of a folder reads them: a person who wants one of them names it. Names
are a list that can never be complete. So in the home folder, where programs keep their settings and
tokens, everything hidden is refused, and small files are searched for the shapes of keys. A text
that only quotes a key is read: a key must make up half of it. In settings one key is enough.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from mcpvectordb.config import Config
from mcpvectordb.ingest.formats.charset import unicode_encoding

# macOS takes letters of either case for the same, and has a second name for the folders of users
# (/System/Volumes/Data/Users); a path with its links resolved has whichever was given.
MANY_NAMES = sys.platform == "darwin"

# Below the home folder; macOS has documents of clouds in two folders of its Library.
_HOME = re.compile(r"(?:\.|appdata/roaming(?:/|$)|library/(?!mobile documents/|cloudstorage/))")

# The shapes of keys and tokens whose form says what they are.
_SHAPES = r"""
    -----BEGIN[ ][A-Z0-9 ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----[\sA-Za-z0-9+/=:,.()\\-]{40,}
    | AGE-SECRET-KEY-1[0-9A-Z]{50,}
    | \b(?: gh[pousr]_[A-Za-z0-9]{30,} | github_pat_\w{30,} | glpat-[\w-]{20,}
        | sk-(?=[\w-]{0,40}\d)[\w-]{20,} | xox[abeoprs]-[\w-]{10,} | xapp-\d-[\w-]{20,}
        | hooks\.slack\.com/services/[\w/]{30,}
        | (?:AKIA|ASIA)[0-9A-Z]{16}(?:\s{0,2}[,;:]\s{0,2}[\w/+=]{40})?
        | AIza[\w-]{35} | ya29\.[\w-]{50,} | SG\.[\w-]{20,}\.[\w-]{30,} | SK[0-9a-f]{32}
        | hf_[A-Za-z0-9]{30,} | npm_[A-Za-z0-9]{36} | pypi-[\w-]{50,} | gsk_\w{40,}
        | hvs\.[\w-]{50,} | dop_v1_[0-9a-f]{60,} | \d{8,10}:AA[\w-]{33}
        | [MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}
        | [rs]k_live_\w{20,} | eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}
        | AccountKey=[\w/+=]{40,} | PrivateKey\s{0,4}=\s{0,4}[\w/+]{43}=
        | aws_secret_access_key["']?\s{0,4}[:=]\s{0,4}["']?[\w/+=]{30,}
        # The beginning of a private key in Base64, not of a certificate.
        | LS0tLS1CRUdJTiB(?!DRVJU)[\w/+=]{200,} )
"""
_LARGEST_FILE = 100_000
_SETTINGS = ".json .yaml .yml .toml .ini .cfg .conf .config .properties .plist .tf".split()

# Matches files that are a private key, not texts that quote one.
_KEY_FILE = re.compile(
    rb"\s*(?:PuTTY-User-Key-File|(?:(?:-----BEGIN CERT|Bag Attributes).*)?"
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY)",
    re.DOTALL,
)


def is_secret_place(path: Path, roots: Collection[Path] = ()) -> bool:
    """Whether secrets are kept at an absolute path.

    A person who allows a hidden folder of the home folder by naming it in `roots` may have what is
    in it read, unless it is a well-known secret.
    """
    own = Path(os.path.realpath(Config.data_folder()))  # it holds the server's token
    if _below(own, path) is not None or _names().search(path.as_posix().casefold()):
        return True
    allowed = [root for root in roots if _is_hidden_at_home(root)]
    allowed += [Path(os.path.realpath(root)) for root in allowed]
    return _is_hidden_at_home(path) and not any(map(path.is_relative_to, allowed))


def secret_in(raw: bytes, suffix: str = "") -> str:
    """What kind of secret a file is by its content, "" for none; a text may quote a secret."""
    if _KEY_FILE.match(raw[:20_000]):
        return "a private key"
    if len(raw) > _LARGEST_FILE:
        return ""
    text = raw.decode(unicode_encoding(raw) or "utf-8", "replace")
    token, assigned = _tokens()
    if not token.search(text):
        return ""
    if suffix.lower() not in _SETTINGS and 2 * _visible(assigned.sub("", text)) > _visible(text):
        return ""
    return "a private key" if "PRIVATE KEY" in text else "a file of keys or tokens"


@functools.cache
def _names() -> re.Pattern[str]:
    """The expression of `secret_names.txt`: files and folders (with a slash), wherever they are.

    In a name, * matches any part of it and ? any character.
    """
    expressions = []
    for secret in Path(__file__).with_name("secret_names.txt").read_text("utf-8").split():
        name = re.escape(secret.rstrip("/")).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
        expressions.append(f"/{name}/" if secret.endswith("/") else f"/{name}$")
    return re.compile("|".join(expressions))


def _is_hidden_at_home(path: Path) -> bool:
    """Whether a path is among the settings of programs: hidden in the home folder."""
    for home in {os.path.expanduser("~"), os.path.realpath(os.path.expanduser("~"))}:  # noqa: PTH111
        # An account without a home folder has "/" or an unchanged "~".
        if len(home) > 1 and (inside := _below(Path(home), path)) not in (None, Path()):
            return _HOME.match(inside.as_posix().casefold()) is not None
    return False


def _below(folder: Path, path: Path) -> Path | None:
    """What of a path is below a folder; None if it is elsewhere."""
    if path.is_relative_to(folder):
        return path.relative_to(folder)
    for parent in path.parents if MANY_NAMES else ():
        with suppress(OSError):  # of a path that is not there
            if parent.samefile(folder):
                return path.relative_to(parent)
    return None


@functools.cache
def _tokens() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a token, and of a token with the name that it is assigned to."""
    name = r"""(?:[\w.-]{1,60}["']?\s{0,4}[:=]\s{0,4}["']?)?"""
    return re.compile(_SHAPES, re.VERBOSE), re.compile(f"{name}(?:{_SHAPES})", re.VERBOSE)


def _visible(text: str) -> int:
    """The number of visible characters outside of comment lines."""
    return sum(
        len("".join(line.split()))
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
    )
