"""A bundle: versions of items as one machine sends them to others, packed, perhaps encrypted.

It begins with a line that names its format. What follows is JSON, compressed as bodies of versions
are: what the bundle is, then the versions in the form that history and merge share. Its name is the
digest of its bytes. What is in it may be anybody's: here it is seen that it has the right shape,
and the merge sees to what it says.

With a passphrase the JSON is encrypted by libsodium (XChaCha20-Poly1305, the key by Argon2id from
the passphrase and a random salt), and the first line and the salt are authenticated with it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from mcpvectordb.errors import Damaged, InvalidInput, MCPVectorDBError, NewerFile
from mcpvectordb.history.versions import Item, Version, VersionedShelf, pack, unpack
from mcpvectordb.merge import ChangeRow, ModelSettings
from mcpvectordb.metadata import from_base64
from mcpvectordb.remotes.records import NOT_WHOLE
from mcpvectordb.remotes.targets import SUFFIX
from mcpvectordb.transfer.restore import model_of_header

FORMAT = 1
SALT = 16
_PLAIN, _ENCRYPTED = (
    f"mcpvectordb bundle {FORMAT}{kind}\n".encode() for kind in ("", " encrypted")
)


class SentVersion(NamedTuple):
    """A version with what its file has beside it.

    until       up to when it was the present one; None if it is
    before      the stamp of the version before it; -1 if none is known
    embeddings  of the chunks of a present version, by their positions
    """

    version: Version
    until: int | None
    before: int
    body: bytes
    embeddings: Mapping[int, bytes]


class Bundle(NamedTuple):
    """What a machine sends at once.

    writer, machine    its random name, and the one that people know
    sequence, first    the number of this bundle; with it come all from `first` on
    clock              the last stamp of its file
    header             the model of its file, as an export has it
    forgotten          up to which stamp items are forgotten, by the digests of their names
    """

    writer: str
    machine: str
    sequence: int
    first: int
    clock: int
    header: Mapping[str, Any]
    stores: Sequence[tuple[str, str, int]]
    projects: Mapping[str, Mapping[Any, Any]]
    forgotten: Mapping[str, int]
    changes: list[ChangeRow]
    versions: list[SentVersion]

    def encode(self, passphrase: str, salt: bytes) -> tuple[str, bytes]:
        """The name of the bundle, and its bytes."""
        said = self._asdict() | {"versions": [_line(each) for each in self.versions]}
        content = pack(said)
        if passphrase:
            from nacl.secret import Aead

            head = _ENCRYPTED + salt
            content = head + Aead(_key(passphrase, salt)).encrypt(content, head)
        else:
            content = _PLAIN + content
        return hashlib.sha256(content).hexdigest() + SUFFIX, content

    @classmethod
    def decode(cls, name: str, content: bytes, passphrase: str) -> Bundle:
        """The bundle of such bytes; raises Damaged, InvalidInput or NewerFile."""
        if hashlib.sha256(content).hexdigest() + SUFFIX != name:
            raise Damaged(NOT_WHOLE)
        head, _, _ = content[:100].partition(b"\n")
        if head + b"\n" not in (_PLAIN, _ENCRYPTED):
            if head.startswith(b"mcpvectordb bundle "):
                raise NewerFile("it was written by a newer version: update mcpvectordb here")
            raise Damaged("it is no bundle")
        if (head + b"\n" == _ENCRYPTED) != bool(passphrase):
            raise InvalidInput(
                "it is not encrypted, as all bundles of this remote must be"
                if passphrase
                else "it is encrypted: add the remote with its passphrase (--encrypted)"
            )
        content = content[len(head) + 1 :]
        if passphrase:
            content = _decrypted(content, passphrase)
        try:
            return cls._decode(unpack(content))
        except MCPVectorDBError as error:
            raise Damaged(f"it is no bundle that is ever written ({error})") from None
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise Damaged("it is no bundle that is ever written") from None

    @classmethod
    def _decode(cls, said: Any) -> Bundle:
        if any(type(said[each]) is not str for each in ("writer", "machine")):
            raise TypeError
        model_of_header(said["header"])
        return cls(
            writer=said["writer"][:100],
            machine=" ".join(said["machine"][:100].split()),
            sequence=_number(said["sequence"], 1, 2**53),
            first=_number(said["first"], 1, 2**53),
            clock=_number(said["clock"]),
            header=said["header"],
            stores=[(str(name), str(by), _number(stamp)) for name, by, stamp in said["stores"]],
            projects={str(key): dict(names) for key, names in said["projects"].items()},
            forgotten={
                bytes.fromhex(key).hex(): _number(stamp, 0, said["clock"])
                for key, stamp in said["forgotten"].items()
            },
            changes=[
                ChangeRow(
                    _number(change),
                    _number(stamp),
                    str(actor),
                    str(action),
                    None if undone is None else _number(undone),
                )
                for change, stamp, actor, action, undone in said["changes"]
            ],
            versions=[_sent(each) for each in said["versions"]],
        )


class BundleSource:
    """A bundle as what a merge takes; `deletions` are known ones of its items."""

    def __init__(self, place: str, bundle: Bundle, deletions: Sequence[Version]) -> None:
        self.place, self._bundle, self._deletions = place, bundle, deletions
        self._sent = {(*each.version.item, *each.version.order): each for each in bundle.versions}
        self._before: dict[Item, int] = {}
        for each in bundle.versions:
            item = each.version.item
            self._before[item] = max(self._before.get(item, -1), each.before)

    def clock(self) -> int | None:
        """The last stamp of the sender's file."""
        return self._bundle.clock

    def model(self) -> ModelSettings | None:
        """The model of the sender's file."""
        model, *sizes = model_of_header(self._bundle.header)
        return None if model is None else ModelSettings(model, *sizes)

    def stores(self) -> Sequence[tuple[str, str, int]]:
        """Stores of vectors that others need not know yet."""
        return self._bundle.stores

    def projects(self) -> Mapping[str, Mapping[Any, Any]]:
        """Projects that others need not know yet."""
        return self._bundle.projects

    def count(self) -> int:
        """How many versions it has."""
        return len(self._bundle.versions)

    def present(self) -> Iterator[Version]:
        """The versions that were the present ones."""
        return (each.version for each in self._bundle.versions if each.until is None)

    def former(self) -> Iterator[tuple[Version, int]]:
        """Former versions, those of last first, and known deletions."""
        found = [
            (each.version, each.until) for each in self._bundle.versions if each.until is not None
        ]
        found += [(each, each.stamp) for each in self._deletions]
        return iter(sorted(found, key=lambda each: -each[1]))

    def body(self, version: Version, shelf: VersionedShelf) -> bytes:
        """The packed body of a version."""
        return self._sent[(*version.item, *version.order)].body

    def embeddings(self, version: Version, shelf: VersionedShelf) -> Mapping[int, bytes]:
        """The embeddings of a version's chunks."""
        return self._sent[(*version.item, *version.order)].embeddings

    def had(self, version: Version) -> bool:
        """Whether the sender's file had a version of ours, or a later one, when it changed it."""
        return version.stamp <= self._before.get(version.item, -1)

    def changes(self) -> Iterator[ChangeRow]:
        """What the log says of these versions."""
        return iter(self._bundle.changes)


def _line(sent: SentVersion) -> dict[str, Any]:
    line: dict[str, Any] = {
        "item": sent.version.item,
        "stamp": sent.version.stamp,
        "fields": sent.version.fields,
        "before": sent.before,
    }
    if sent.until is not None:
        line["until"] = sent.until
    if sent.body:
        line["body"] = base64.b64encode(sent.body).decode()
    if sent.embeddings:
        line["embeddings"] = {
            position: base64.b64encode(each).decode() for position, each in sent.embeddings.items()
        }
    return line


def _sent(line: Mapping[str, Any]) -> SentVersion:
    shelf, place, name, twin = line["item"]
    fields, until, body = line["fields"], line.get("until"), line.get("body", "")
    if not all(type(each) is str for each in (shelf, place, name, twin)):
        raise TypeError
    if (fields is None and (until is None or body)) or not isinstance(fields, dict | None):
        raise TypeError
    return SentVersion(
        Version(
            Item(shelf, place, name, twin),
            _number(line["stamp"]),
            fields,
            b"" if fields is not None else None,
        ),
        None if until is None else _number(until),
        _number(line["before"], -1),
        from_base64(body, "body"),
        {
            int(at): from_base64(each, "an embedding")
            for at, each in line.get("embeddings", {}).items()
        },
    )


def _number(value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(value)
    return value


def size_of(sent: SentVersion) -> int:
    """About how many bytes of JSON a version takes."""
    binary = len(sent.body) + sum(map(len, sent.embeddings.values()))
    return 200 + binary * 4 // 3 + len(json.dumps(sent.version.fields))


@lru_cache(64)
def _key(passphrase: str, salt: bytes) -> bytes:
    from nacl.pwhash import argon2id

    return argon2id.kdf(
        32, passphrase.encode(), salt, argon2id.OPSLIMIT_MODERATE, argon2id.MEMLIMIT_MODERATE
    )


def _decrypted(content: bytes, passphrase: str) -> bytes:
    from nacl.exceptions import CryptoError
    from nacl.secret import Aead

    salt, sealed = content[:SALT], content[SALT:]
    try:
        if len(salt) < SALT:
            raise ValueError
        return Aead(_key(passphrase, salt)).decrypt(sealed, _ENCRYPTED + salt)
    except (CryptoError, ValueError):
        raise InvalidInput("it cannot be read with this passphrase, or was changed since") from None


def verifier(passphrase: str, salt: bytes) -> str:
    """A text that tells whether a passphrase is the same, and not which; raises InvalidInput."""
    try:
        return hashlib.sha256(_key(passphrase, salt)).hexdigest() if passphrase else ""
    except ImportError:
        raise InvalidInput(
            "encrypted remotes need the extra: pip install 'mcpvectordb[encryption]'"
        ) from None
