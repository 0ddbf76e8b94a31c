"""Names of files that every system accepts, made from sources and threads of any kind.

A source may be ../../etc/passwd, C:\\con, a URL, or 5,000 characters of anything. The names made of
them stay inside of their folder, hide nothing, and are different on disks that ignore case, too.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

LONGEST_NAME = 120  # bytes of a name: systems allow 255, and suffixes are added to it
LONGEST_PATH = (
    200  # characters of a path: some programs on Windows allow 260 with the folders above
)
ENDING = ".md"

# Separators, control characters, what Windows does not allow, and what turns the text around.
_UNSAFE = re.compile(r'[/\\\x00-\x1f\x7f-\x9f<>:"|?*\u200e\u200f\u202a-\u202e\u2066-\u2069]')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.|$)")


class FileNames:
    """Gives each text a path of its own, relative to one folder."""

    def __init__(self) -> None:
        # Digests, so that a million paths take some ten MB.
        self._taken: set[bytes] = set()

    def of(self, folders: Sequence[str], path: str, id: str) -> str:
        """A path in these folders for a source; `id` makes it different from those before it."""
        inner = [each for each in re.split(r"[/\\]+", path) if each not in _DOTS]
        *above, last = [_safe(each) for each in (*folders, *(inner or [""]))]
        name = f"{_shortened(last.removesuffix(ENDING))}{ENDING}"
        inside = "/".join(_folder(each) for each in above)
        if len(inside) + len(name) > LONGEST_PATH:
            inside = "/".join([*map(_folder, above[: len(folders)]), _digest(inside).hex()[:16]])
        chosen = f"{inside}/{name}"
        if not self._take(chosen):
            marked = _shortened(f"{name.removesuffix(ENDING)} {_safe(id)}")
            chosen = f"{inside}/{marked}{ENDING}"
            self._take(chosen)
        return chosen

    def _take(self, path: str) -> bool:
        """Take a path; whether it was free."""
        key = _digest(unicodedata.normalize("NFC", path).casefold())
        free = key not in self._taken
        self._taken.add(key)
        return free


_DOTS = ("", ".", "..")


def _safe(part: str) -> str:
    """A part of a path as a name that is visible and allowed everywhere."""
    name = _UNSAFE.sub("_", unicodedata.normalize("NFC", part)).strip().rstrip(". ")
    if not name or name.startswith(".") or _RESERVED.match(name):
        name = f"_{name}"
    return name


def _folder(name: str) -> str:
    """A folder's name, which never is a file's: those end with .md, and these never do."""
    short = _shortened(name)
    return f"{short}_" if short.casefold().endswith(ENDING) else short


def _shortened(name: str) -> str:
    """A name of at most LONGEST_NAME bytes; a longer one ends with a digest of all of it."""
    raw = name.encode()
    if len(raw) <= LONGEST_NAME:
        return name
    kept = raw[: LONGEST_NAME - 17].decode(errors="ignore").rstrip(". ")
    return f"{kept}-{_digest(name).hex()[:16]}"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]
