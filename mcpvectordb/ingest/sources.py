"""Files and pages as raw bytes: what a person or an agent names, judged before it is read.

A file is opened step by step along its resolved path without following any link, so what was judged
is what is read, whatever happens to the folders meanwhile (on Windows, which cannot do this, the
path is opened as a whole). Only regular files are opened at all: opening a device or a named pipe
can already do harm or wait forever.
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

# What an agent has no business to read, wherever it lies. A name with a slash at its end is a
# folder; * is any part of a name, ? any character.
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
"""


def _expression(secret: str) -> str:
    name = re.escape(secret.rstrip("/")).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return f"/{name}/" if secret.endswith("/") else f"/{name}$"


@functools.cache
def _secrets() -> re.Pattern[str]:
    return re.compile("|".join(map(_expression, SECRETS.split())))


# Not each text that shows a key, but a file that is one.
_KEY_FILE = re.compile(
    rb"\s*(?:PuTTY-User-Key-File|(?:-----BEGIN |Bag Attributes).*PRIVATE KEY)", re.DOTALL
)
_OPEN = os.O_RDONLY | sum(
    getattr(os, name, 0)
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
)
# O_PATH passes folders that may be entered but not listed.
_STEP = sum(getattr(os, name, 0) for name in ("O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"))


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
    """Read a URL (`fetch`) or a file (`read_path`); see there for what the parameters mean and what
    is refused.

    None when a URL's server says that it still has the version with this `etag` or `modified` time.
    """
    if not is_url(source):
        return read_path(source, config=config, roots=roots, guard=guard, forbidden=forbidden)
    from mcpvectordb.ingest import urls  # a file needs no network

    return urls.fetch(str(source), config=config, etag=etag, modified=modified, progress=progress)


def is_url(source: str | os.PathLike[str]) -> bool:
    """Whether this is written as a URL of any kind; `fetch` refuses all but http and https."""
    return isinstance(source, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", source) is not None


def read_path(
    path: str | os.PathLike[str],
    *,
    config: Config,
    roots: Collection[Path] = (),
    guard: bool = False,
    forbidden: Collection[Path] = (),
) -> Source:
    """Read a file. Its identity, `Source.source`, is the absolute path without links, `~` expanded.

    With `roots`, only what lies inside one of these folders after links are resolved. With `guard`,
    well-known secrets are refused: it is meant for paths that an agent names, where a person may
    well want them. `forbidden` names database files that must not be touched, under whatever name
    or hard link. Unreadable: missing, a folder, no permission. Refused: by these rules. TooLarge:
    above `config.max_source_bytes`.
    """
    named, resolved = _resolve(path)
    _judge(named, resolved, roots, guard)
    try:
        raw, info = _read_regular(resolved, config.max_source_bytes, forbidden)
    except IngestError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if guard and _KEY_FILE.match(raw[:20_000]):
        raise Refused(f"{resolved} is a private key")
    return Source(
        source=str(resolved),
        name=resolved.name,
        raw=raw,
        file_type=resolved.suffix[1:].lower() or "unknown",
        modified=_iso(info.st_mtime),
    )


def _resolve(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The path as it was named, but absolute, and where it leads."""
    try:
        named = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - Path.absolute keeps ".."
        return named, Path(os.path.realpath(Path(path).expanduser()))
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from None


def _judge(named: Path, resolved: Path, roots: Collection[Path], guard: bool) -> None:
    if roots and not any(resolved.is_relative_to(os.path.realpath(root)) for root in roots):
        allowed = ", ".join(str(root) for root in roots)
        raise Refused(f"{named} is outside of the folders that may be read ({allowed})")
    if any(each.is_relative_to(kernel) for each in (named, resolved) for kernel in KERNEL):
        raise Refused(f"{named} is not a file but a view into the system")
    if guard and (_is_secret(named) or _is_secret(resolved)):
        raise Refused(
            f"{named} is where secrets are kept; copy the file elsewhere if an agent shall read it"
        )


def _is_secret(path: Path) -> bool:
    return _secrets().search(path.as_posix().casefold()) is not None


def _read_regular(
    path: Path, limit: int, forbidden: Collection[Path]
) -> tuple[bytes, os.stat_result]:
    folder = _enter(path.parent)
    where, name = (None, path) if folder is None else (folder, path.name or ".")
    try:
        # The database is recognised before it is opened: closing it again would drop the locks that
        # SQLite holds.
        before = os.stat(name, dir_fd=where, follow_symlinks=False)
        _judge_kind(path, before)
        if _same_as_any(before, forbidden):
            raise Refused(f"{path} is the database itself")
        handle = os.open(name, _OPEN, dir_fd=where)
    finally:
        if folder is not None:
            os.close(folder)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(handle)
        if not os.path.samestat(before, info):
            raise Unreadable(f"{path} was replaced while it was being opened; try again")
        # The size may be a lie (a growing file, a strange file system), so the reading is capped as
        # well.
        if info.st_size > limit or len(raw := file.read(limit + 1)) > limit:
            size = max(info.st_size, limit + 1)
            raise TooLarge(
                f"{path} has {size} bytes, more than the limit of {limit} (max_source_bytes)"
            )
        return raw, info


def _enter(folder: Path) -> int | None:
    """A handle on a folder, reached without following any link; None where the system has no such
    handles.
    """
    if os.open not in os.supports_dir_fd:
        return None
    handle = os.open(folder.anchor, _STEP)
    for part in folder.parts[1:]:
        try:
            following = os.open(part, _STEP, dir_fd=handle)
        finally:
            os.close(handle)
        handle = following
    return handle


def _judge_kind(path: Path, info: os.stat_result) -> None:
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
    except (ValueError, OverflowError, OSError):  # a clock gone wild
        return ""
