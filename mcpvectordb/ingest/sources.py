"""Read the raw bytes of a file or URL after checking that it may be read.

A file is opened folder by folder along its resolved path without following any link. So the file
that was checked is the one that is read, even if folders are replaced meanwhile (no TOCTOU race; on
Windows, which has no such calls, the path is opened as a whole). Only regular files are opened:
opening a device or a named pipe can have side effects or block forever.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from mcpvectordb.config import Config
from mcpvectordb.errors import IngestError, Refused, TooLarge, Unreadable
from mcpvectordb.records import ProgressCallback, Source

KERNEL = ("/proc", "/sys")
SIBLINGS = ("", "-wal", "-shm", "-journal")

# What neither an agent nor the sync of a folder reads, wherever it is. A name with a slash at its
# end is a folder; * matches any part of a name, ? any character.
SECRETS = """
    .ssh/ .gnupg/ .aws/ .azure/ .kube/ .oci/ .putty/ .pki/ .password-store/ .1password/
    .terraform.d/ .minikube/ .docker/config.json .config/gcloud/ .config/gh/ .config/op/
    .config/containers/auth.json .config/rclone/ .config/git/credentials .cargo/credentials*
    .gem/credentials .m2/settings*.xml .vault-token .databrickscfg .boto .s3cfg .env* *.env .netrc
    _netrc .pgpass .my.cnf .mylogin.cnf .git-credentials .npmrc .yarnrc.yml .pypirc .htpasswd
    .*_history credentials credentials.json credentials.db .credentials* client_secret*.json
    application_default_credentials.json secrets.json secrets.yaml secrets.yml secrets.toml id_rsa
    id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk *.p12 *.pfx *.jks *.keystore *.kdbx *.ppk
    *.keytab *.keychain *.keychain-db wallet.dat keychains/ keyrings/ kwalletd/
    microsoft/credentials/ microsoft/protect/ microsoft/vault/ etc/shadow* etc/gshadow* etc/sudoers*
    etc/master.passwd etc/ssl/private/ run/secrets/ .mozilla/ .thunderbird/ firefox/profiles/
    thunderbird/profiles/ snap/firefox/ snap/chromium/ .config/chromium/ .config/google-chrome*/
    .config/microsoft-edge*/ .config/bravesoftware/ .config/vivaldi/ .config/opera/
    local/google/chrome*/ local/chromium/ local/microsoft/edge/ local/bravesoftware/
    application?support/chromium/ application?support/google/chrome*/
    application?support/bravesoftware/ application?support/microsoft?edge/ key3.db key4.db
    logins.json cookies.sqlite
    .claude.json* .claude/settings*.json claude_desktop_config.json .mcp.json mcp_config.json
    .codex/auth.json .codex/config.toml .cursor/mcp.json .vscode/mcp.json code*/user/mcp.json
    zed/settings.json cline_mcp_settings.json .gemini/oauth_creds.json .gemini/settings.json
    .config/github-copilot/ opencode/auth.json .continue/config.* .config/goose/
    sops/age/ age/keys.txt age-key*.txt huggingface/token .huggingface/token kaggle.json
    service-account*.json service_account*.json gha-creds-*.json .terraformrc terraform.rc
    terraform.tfstate* .config/doctl/ .config/hcloud/ .config/glab-cli/ .config/hub .config/heroku/
    .config/ngrok/ .ngrok2/ .fly/ .netlify/ .vercel/ .snowflake/ .bitcoin/ .ethereum/
"""


def _expression(secret: str) -> str:
    name = re.escape(secret.rstrip("/")).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return f"/{name}/" if secret.endswith("/") else f"/{name}$"


@functools.cache
def _secrets() -> re.Pattern[str]:
    return re.compile("|".join(map(_expression, SECRETS.split())))


# The shapes of keys and tokens whose form says what they are.
_SHAPES = r"""
    -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY(?:[ ]BLOCK)?-----[\sA-Za-z0-9+/=:,.()\\-]{40,}
    | AGE-SECRET-KEY-1[0-9A-Z]{50,}
    | \b(?: gh[pousr]_[A-Za-z0-9]{30,} | github_pat_\w{30,} | glpat-[\w-]{20,}
        | sk-[\w-]{20,} | xox[abeoprs]-[\w-]{10,} | (?:AKIA|ASIA)[0-9A-Z]{16}
        | AIza[\w-]{35} | hf_[A-Za-z0-9]{30,} | npm_[A-Za-z0-9]{36} | pypi-[\w-]{50,}
        | [rs]k_live_\w{20,} | eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}
        | aws_secret_access_key["']?\s{0,4}[:=]\s{0,4}["']?[\w/+=]{30,} )
"""
_LONGEST_TOKEN_FILE = 20_000


@functools.cache
def _tokens() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a token, and of a token with the name that it is assigned to."""
    name = r"""(?:[\w.-]{1,60}["']?\s{0,4}[:=]\s{0,4}["']?)?"""
    return re.compile(_SHAPES, re.VERBOSE), re.compile(f"{name}(?:{_SHAPES})", re.VERBOSE)


# Matches files that are a private key, not texts that quote one.
_KEY_FILE = re.compile(
    rb"\s*(?:PuTTY-User-Key-File|(?:-----BEGIN |Bag Attributes).*PRIVATE KEY)", re.DOTALL
)
_OPEN_FILE = os.O_RDONLY | sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
)
# O_PATH also opens folders that may be entered but not listed.
_OPEN_FOLDER = sum(
    getattr(os, name, 0) for name in ("O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
)


class SecretFile(Refused):
    """The file holds a secret, by its path or by its content."""


def read(
    source: str | os.PathLike[str],
    *,
    config: Config,
    roots: Collection[Path] = (),
    guard: bool = False,
    forbidden: Collection[Path] = (),
    etag: str = "",
    modified: str = "",
    progress: ProgressCallback | None = None,
) -> Source | None:
    """Read a URL with `urls.fetch` or a file with `read_path`, which explain the parameters.

    Returns None if a URL's server reports that the version with this `etag` or `modified` time is
    still current.
    """
    if not is_url(source):
        return read_path(source, config=config, roots=roots, guard=guard, forbidden=forbidden)
    from mcpvectordb.ingest import urls  # a file needs no network

    return urls.fetch(str(source), config=config, etag=etag, modified=modified, progress=progress)


def is_url(source: str | os.PathLike[str]) -> bool:
    """Whether this has the form of a URL of any scheme; `fetch` allows http and https only."""
    return isinstance(source, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", source) is not None


def read_path(
    path: str | os.PathLike[str],
    *,
    config: Config,
    roots: Collection[Path] = (),
    guard: bool = False,
    forbidden: Collection[Path] = (),
) -> Source:
    """Read a file; `Source.source` is its absolute path with `~` expanded and links resolved.

    - roots: if given, the resolved path must be inside one of these folders.
    - guard: refuse secrets (SecretFile); for paths that a person has not named one by one.
    - forbidden: database files that must not be opened, under any name or hard link.

    Raises Unreadable (missing, a folder, no permission), Refused (by the rules above) or TooLarge
    (above `config.max_source_bytes`).
    """
    named, resolved = _resolve(path)
    _check_path(named, resolved, roots, guard)
    try:
        raw, info = _read_regular(resolved, config.max_source_bytes, forbidden)
    except IngestError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if guard and (what := _secret_in(raw)):
        raise _secret_file(resolved, f"is {what}")
    return Source(
        source=str(resolved),
        name=resolved.name,
        raw=raw,
        file_type=resolved.suffix[1:].lower() or "unknown",
        modified=_iso(info.st_mtime),
    )


def _resolve(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The absolute path as it was given, and the path with links resolved."""
    try:
        named = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - Path.absolute keeps ".."
        return named, Path(os.path.realpath(Path(path).expanduser()))
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from None


def _check_path(named: Path, resolved: Path, roots: Collection[Path], guard: bool) -> None:
    if roots and not any(resolved.is_relative_to(os.path.realpath(root)) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise Refused(f"{named} is outside of the folders that may be read ({allowed})")
    if any(each.is_relative_to(kernel) for each in (named, resolved) for kernel in KERNEL):
        raise Refused(f"{named} is not a file but an interface to the kernel")
    if guard and (_is_secret(named) or _is_secret(resolved)):
        raise _secret_file(named, "is where secrets are kept")


def _secret_file(path: Path, what: str) -> SecretFile:
    return SecretFile(
        f"{path} {what}; only a person may ingest it, by name on the command line: "
        "mcpvectordb ingest FILE"
    )


def _is_secret(path: Path) -> bool:
    own = os.path.realpath(Config.data_folder())  # it holds the server's token
    return path.is_relative_to(own) or _secrets().search(path.as_posix().casefold()) is not None


def _secret_in(raw: bytes) -> str:
    """What kind of secret a file is by its content, "" for none; a text may quote a secret."""
    if _KEY_FILE.match(raw[:20_000]):
        return "a private key"
    if len(raw) > _LONGEST_TOKEN_FILE:
        return ""
    utf16 = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = raw.decode("utf-16" if utf16 else "utf-8", "replace")
    token, assigned = _tokens()
    if not token.search(text):
        return ""
    rest = _visible(assigned.sub("", text))
    if 2 * rest > _visible(text):
        return ""
    return "a private key" if "PRIVATE KEY" in text else "a file of keys or tokens"


def _visible(text: str) -> int:
    """The number of visible characters outside of comment lines."""
    return sum(
        len("".join(line.split()))
        for line in text.splitlines()
        if not line.lstrip().startswith("#")
    )


def _read_regular(
    path: Path, limit: int, forbidden: Collection[Path]
) -> tuple[bytes, os.stat_result]:
    folder = _open_folder(path.parent)
    where, name = (None, path) if folder is None else (folder, path.name or ".")
    try:
        # The database must not even be opened: closing it would drop the POSIX locks that SQLite
        # holds in this process.
        before = os.stat(name, dir_fd=where, follow_symlinks=False)
        _check_type(path, before)
        if _same_as_any(before, forbidden):
            raise Refused(f"{path} is the database itself")
        handle = os.open(name, _OPEN_FILE, dir_fd=where)
    finally:
        if folder is not None:
            os.close(folder)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not os.path.samestat(before, info):
            raise Unreadable(f"{path} was replaced while it was being opened; try again")
        # The reported size may be wrong (a growing file, a special file system), so the read is
        # limited as well.
        if info.st_size > limit or len(raw := file.read(limit + 1)) > limit:
            size = max(info.st_size, limit + 1)
            raise TooLarge(
                f"{path} has {size} bytes, more than the limit of {limit} (max_source_bytes)"
            )
        return raw, info


def _open_folder(folder: Path) -> int | None:
    """A file descriptor of a folder, opened without following links; None where unsupported."""
    if os.open not in os.supports_dir_fd:
        return None
    handle = os.open(folder.anchor, _OPEN_FOLDER)
    for part in folder.parts[1:]:
        try:
            following = os.open(part, _OPEN_FOLDER, dir_fd=handle)
        finally:
            os.close(handle)
        handle = following
    return handle


def _check_type(path: Path, info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file")
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISLNK(info.st_mode):
        raise Refused(f"{path} is a device, a pipe or a socket, not a file")


def _same_as_any(info: os.stat_result, forbidden: Collection[Path]) -> bool:
    for path in forbidden:
        for suffix in SIBLINGS:
            with suppress(OSError):
                if os.path.samestat(info, Path(f"{path}{suffix}").stat()):
                    return True
    return False


def _unreadable(path: str | os.PathLike[str], error: Exception) -> Unreadable:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return Unreadable(
        f"{os.fspath(path)!r} cannot be read: {reason} (working folder: {_working_folder()})"
    )


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "one that no longer exists"


def _iso(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a time stamp out of range
        return ""
