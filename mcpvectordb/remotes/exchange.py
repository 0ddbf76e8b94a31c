"""One exchange: merge the bundles that are new, then write one with what the remote has not.

A version is sent if no bundle of the remote has it. Only those are looked at that came after the
last exchange by the clock of history, unless something else was merged since, which may be older.

Each machine writes and removes its own bundles alone. When there are many, the small new ones
become one; so do all from the first on that has something which is forgotten. What a deletion
deleted stays deleted although histories drop it after a while: it is in the bundles, and goes with
every version of the item that comes later.
"""

from __future__ import annotations

import platform
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from mcpvectordb import dates
from mcpvectordb.errors import Damaged, InvalidInput, MCPVectorDBError
from mcpvectordb.history import clock
from mcpvectordb.history.log import MERGES
from mcpvectordb.history.records import Merged
from mcpvectordb.history.versions import Item, Version, VersionedShelf
from mcpvectordb.index import spans
from mcpvectordb.index.chunks import active_model, precision
from mcpvectordb.merge import Merge, logged_changes
from mcpvectordb.projects.shelf import known_names
from mcpvectordb.records import ProgressCallback
from mcpvectordb.remotes import state
from mcpvectordb.remotes.bundle import Bundle, BundleSource, SentVersion, size_of
from mcpvectordb.remotes.records import Exchanged
from mcpvectordb.remotes.state import EXCHANGED, GONE, BundleRow, RemoteRow, RemoteState, SentRecord
from mcpvectordb.remotes.targets import MOST_BYTES, NAME, Target
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.storage.new_file import create_private
from mcpvectordb.store import OpenStore

_TIER = 4  # one that is so many times as large as all that are newer is left as it is
_BATCH = 64_000_000  # bytes of bundles that are read before they are merged in their order


class ExchangedFile(NamedTuple):
    """The file that takes part: its store, the shelves that write items, and what it does else.

    forget  deletes items for good, with their versions up to a stamp
    """

    store: OpenStore
    shelves: Sequence[VersionedShelf]
    forget: Callable[[Mapping[Item, int]], object]


class Exchange:
    """One exchange of a file with a remote."""

    def __init__(
        self,
        file: ExchangedFile,
        known: RemoteState,
        remote: RemoteRow,
        target: Target,
        passphrase: str,
    ) -> None:
        self._store, self._shelves, self._forget = file
        self._state, self._remote, self._target = known, remote, target
        self._passphrase = passphrase
        self._merged: list[Merged] = []
        self._refused: list[str] = []
        self._unlike: list[str] = []  # of these, what is encrypted otherwise than we would send
        self._sent, self._items, self._bytes, self._forgot = 0, 0, 0, 0
        self._stored: dict[str, int] = {}  # the bundles that lie at the target, with their sizes

    def run(self, progress: ProgressCallback | None = None) -> Exchanged:
        """Exchange; raises an error if the target cannot be reached or the file cannot be sent."""
        self._check_file()
        self._stored = self._target.names()
        self._look()
        self._receive(progress)
        self._apply_forgotten()
        note = self._send()
        if self._merged or self._sent:
            self._renew_token()
        with self._state.sql() as sql:
            sql.execute(
                "UPDATE remotes SET exchanged_at = ?, problem = ? WHERE name = ?",
                (dates.now(), "; ".join(self._refused)[:1000], self._remote.name),
            )
            missing = tuple(self._missing(sql))
        names = {
            what: tuple(name for each in self._merged for name in getattr(each, what))
            for what in ("added", "updated", "deleted", "lost")
        }
        return Exchanged(
            name=self._remote.name,
            received=len(self._merged),
            sent=self._sent,
            items=self._items,
            bytes=self._bytes,
            embedded=sum(each.embedded for each in self._merged),
            forgotten=self._forgot,
            refused=tuple(self._refused),
            missing=missing,
            note=note,
            **names,  # type: ignore[arg-type]
        )

    def _check_file(self) -> None:
        """Raise an error for a file whose deletions would not travel, or whose clock is wrong."""
        history = self._store.history
        with self._store.file.reading(limited=False) as sql:
            last, kept = sql.execute("SELECT clock, kept FROM history_state").get
        if not kept or not self._store.config.history_days:
            raise InvalidInput(
                "without a history deletions do not reach other machines: run `mcpvectordb history "
                "on`, and set MCPVECTORDB_HISTORY_DAYS above 0"
            )
        if last > clock.latest(history.wall_clock()):
            raise Damaged(history.ahead(last))

    # What was exchanged before.

    def _look(self) -> None:
        """Compare what is known with the file, and with what lies at the target."""
        with self._store.file.reading(limited=False) as file:
            found = file.execute(
                "SELECT value FROM settings WHERE name = ?", (EXCHANGED + self._remote.name,)
            ).get
        token = (found or "").strip('"')
        with self._state.sql() as sql:
            if token not in (self._remote.token, self._remote.next_token):
                state.start_anew(sql, self._remote.name)
                self._remote = self._remote._replace(since=-1)
            rows = state.bundles(sql, self._remote.name)
            lost = [each for each in rows if self._stored.get(each.name) != each.size != GONE]
            own = {each.number for each in rows if each.writer == self._remote.writer}
            state.mark_gone(sql, {each.number for each in lost}, own)
            rows = self._own(sql)
        # What is damaged, and what came back after it was replaced.
        if left := [each.name for each in rows if each.size == GONE and each.name in self._stored]:
            self._target.change({}, left)
            for name in left:
                del self._stored[name]

    def _own(self, sql: Sql) -> list[BundleRow]:
        rows = state.bundles(sql, self._remote.name)
        return [each for each in rows if each.writer == self._remote.writer]

    def _renew_token(self) -> None:
        """Have the file and what is known of it name each other anew."""
        token, name = uuid.uuid4().hex, self._remote.name
        with self._state.sql() as sql:
            sql.execute("UPDATE remotes SET next_token = ? WHERE name = ?", (token, name))
        with self._store.file.writing() as file:
            file.execute(
                "INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT (name) "
                "DO UPDATE SET value = ?2",
                (EXCHANGED + name, f'"{token}"'),
            )
        with self._state.sql() as sql:
            sql.execute("UPDATE remotes SET token = next_token WHERE name = ?", (name,))

    def _missing(self, sql: Sql) -> Iterator[str]:
        """Bundles of other machines that should be there, as far as later ones say so."""
        rows = state.bundles(sql, self._remote.name)
        for writer in sorted({each.writer for each in rows} - {self._remote.writer}):
            theirs = [each for each in rows if each.writer == writer]
            reached = 0
            for first, last in sorted((each.first, each.sequence) for each in theirs):
                if first > reached + 1:
                    yield f"{theirs[-1].machine}: bundles {reached + 1} to {first - 1}"
                reached = max(reached, last)

    # Receiving.

    def _receive(self, progress: ProgressCallback | None) -> None:
        """Merge the bundles that are new."""
        with self._state.sql() as sql:
            rows = state.bundles(sql, self._remote.name)
        known = {each.name for each in rows if each.size != GONE}
        new = [name for name in sorted(self._stored) if name not in known]
        batch, size = list[tuple[str, Bundle]](), 0
        for name in new:
            if (found := self._read(name)) is not None:
                batch.append((name, found))
                size += self._stored[name]
            if size > _BATCH or name == new[-1]:
                for each in sorted(batch, key=lambda each: (each[1].writer, each[1].sequence)):
                    self._merge(*each, progress)
                batch, size = [], 0
        self._check_encryption()
        if self._merged:
            with self._state.sql() as sql:
                state.drop_repeated(sql, self._remote.name)

    def _check_encryption(self) -> None:
        """Raise an error rather than send what nobody there can read, or everybody could."""
        with self._state.sql(write=False) as sql:
            rows = state.bundles(sql, self._remote.name)
        others = any(each.size != GONE and each.writer != self._remote.writer for each in rows)
        if self._unlike and not others:
            raise InvalidInput(
                f"nothing is sent, as no bundle of another machine can be read: {self._unlike[0]}; "
                "remove the remote and add it as the other machines did, or remove that file"
            )

    def _read(self, name: str) -> Bundle | None:
        """A bundle; None, and a reason, for what is none."""
        try:
            if not NAME.fullmatch(name):
                raise Damaged("it is not called as bundles are; remove it, or its copy")
            return Bundle.decode(name, self._target.read(name), self._passphrase)
        except OSError as error:
            reason = str(error) if isinstance(error, MCPVectorDBError) else error.strerror
            self._refused.append(f"{name:.100}: {reason}")
        except MCPVectorDBError as error:
            self._refused.append(f"{name:.100}: {error}")
            if isinstance(error, InvalidInput):
                self._unlike.append(self._refused[-1])
        return None

    def _merge(self, name: str, bundle: Bundle, progress: ProgressCallback | None) -> None:
        """Merge a bundle in one transaction, or refuse it as a whole."""
        items = {each.version.item: state.digest_of(each.version.item) for each in bundle.versions}
        with self._state.sql() as sql:
            deleted = state.deletions(sql, items.values(), "item")
            gone = dict(sql.execute("SELECT item, stamp FROM forgotten"))
        for item, stamp in bundle.forgotten.items():
            gone[bytes.fromhex(item)] = max(stamp, gone.get(bytes.fromhex(item), 0))
        kept = [
            each
            for each in bundle.versions
            if each.version.stamp > gone.get(items[each.version.item], -1)
        ]
        last = max([bundle.clock, *(each.stamp for each in deleted)])
        source = BundleSource(
            f"{self._remote.name}/{name}", bundle._replace(versions=kept, clock=last), deleted
        )
        try:
            done = Merge(self._store, self._shelves, source, progress).run()
        except Damaged as error:
            self._refused.append(f"{name:.100}: {error}")
            return
        if not self._merged:
            self._renew_token()
        row = self._row(bundle, name, self._stored[name])
        self._note(row, records_of(bundle), bundle.forgotten)
        self._merged.append(done)

    def _apply_forgotten(self) -> None:
        """Forget here what was forgotten on other machines."""
        with self._state.sql() as sql:
            due = dict(sql.execute("SELECT item, stamp FROM forgotten WHERE NOT done"))
        if not due:
            return
        found: dict[Item, int] = {}
        with self._store.file.reading(limited=False) as sql:
            for version, _ in versions(self._store, self._shelves, sql, -1):
                until = due.get(state.digest_of(version.item), -1)
                if version.stamp <= until:
                    found[version.item] = until
        self._forget(found)
        self._forgot = len(found)
        with self._state.sql() as sql:
            sql.executemany(
                "UPDATE forgotten SET done = 1 WHERE item = ? AND stamp = ?", due.items()
            )

    # Sending.

    def _send(self) -> str:
        """Write what the remote has not, and make one of many bundles; what may be lost."""
        with self._state.sql() as known:
            own = self._own(known)
            replaced = [each.number for each in self._replaced(known, own)]
            chosen = "SELECT record FROM sent WHERE bundle = ?"
            again = {record for each in replaced for (record,) in known.execute(chosen, (each,))}
            deleted = state.deletions(known, replaced, "bundle")
            forgotten = dict(known.execute("SELECT item, stamp FROM forgotten"))
        sequence = max((each.sequence for each in own), default=0)
        # The bundle that is written now stands for those that are gone.
        left = [each for each in own if each.size != GONE and each.number not in replaced]
        first = min((each.sequence for each in own if not _stood_for(each, left)), default=0)
        before = self._remote.since
        with tempfile.TemporaryDirectory(dir=self._state.folder) as outbox:
            prepared = list[tuple[BundleRow, list[SentRecord], Mapping[str, int]]]()
            with (
                self._state.sql(write=False) as known,
                self._store.file.reading(limited=False) as sql,
            ):
                last, dropped = sql.execute("SELECT clock, dropped FROM history_state").get
                merges = sql.execute("SELECT value FROM settings WHERE name = ?", (MERGES,)).get
                merges = int(merges or 0)
                ordered = merges == self._remote.merges + len(self._merged)
                since = before if ordered and not first and before <= last else -1

                def wanted(record: bytes) -> bool:
                    return record in again or not state.known(known, self._remote.name, record)

                outgoing = Outgoing(self._store, self._shelves, sql, wanted, forgotten)
                for bundle, is_last in outgoing.parts(since, deleted, needed=first > 0):
                    sequence += 1
                    numbered = bundle._replace(
                        writer=self._remote.writer,
                        machine=platform.node()[:100] or "unnamed",
                        sequence=sequence,
                        first=first if first and is_last else sequence,
                        clock=last,
                    )
                    name, content = numbered.encode(self._passphrase, self._remote.salt)
                    create_private(Path(outbox) / name, content)
                    row = self._row(numbered, name, len(content))
                    prepared.append((row, list(records_of(numbered)), numbered.forgotten))
            if prepared or replaced:
                self._renew_token()
            for row, records, gone in prepared:
                self._target.change({row.name: (Path(outbox) / row.name).read_bytes()}, [])
                self._note(row, records, gone)
                self._sent += 1
                self._items += sum(each.item != b"" for each in records)
                self._bytes += row.size
        if replaced:
            self._target.change({}, [each.name for each in own if each.number in replaced])
        with self._state.sql() as known:
            state.mark_gone(known, replaced, replaced)
            known.execute(
                "UPDATE remotes SET since = ?, merges = ? WHERE name = ?",
                (last, merges, self._remote.name),
            )
        if 0 <= before < dropped:
            return (
                "the history has dropped versions since the last exchange: what was deleted before "
                f"{clock.moment(dropped)[:19]} may still be on other machines; exchange more often"
            )
        return ""

    def _replaced(self, known: Sql, own: Sequence[BundleRow]) -> list[BundleRow]:
        """Our own bundles that become one: there are many, or they have what is forgotten."""
        there = [each for each in own if each.size != GONE]
        start = known.execute(
            "SELECT min(sequence) FROM bundles JOIN sent ON bundle = number JOIN forgotten "
            "ON forgotten.item = sent.item AND sent.stamp <= forgotten.stamp "
            "WHERE remote = ? AND writer = ?",
            (self._remote.name, self._remote.writer),
        ).get
        many, run, total = self._store.tuning.bundles, list[BundleRow](), 0
        for each in reversed(there):
            if each.is_full or (len(run) >= many // 2 and each.size > _TIER * total):
                break
            run.append(each)
            total += each.size
        if sum(not each.is_full for each in there) >= many and len(run) >= many // 2:
            start = min(run[-1].sequence, start or run[-1].sequence)
        return [each for each in there if start is not None and each.sequence >= start]

    def _row(self, bundle: Bundle, name: str, size: int) -> BundleRow:
        content = sum(map(size_of, bundle.versions))
        return BundleRow(
            0, self._remote.name, name, size, bundle.writer, bundle.machine, bundle.sequence,
            bundle.first, int(content > self._store.tuning.bundle_bytes),
        )  # fmt: skip

    def _note(self, row: BundleRow, records: Iterable[SentRecord], gone: Mapping[str, int]) -> None:
        """Note a bundle that was written or merged, what is in it, and what it says is gone."""
        with self._state.sql() as sql:
            state.add_bundle(sql, row, records)
            forgotten = {bytes.fromhex(item): stamp for item, stamp in gone.items()}
            state.forget(sql, forgotten, done=False)


def _stood_for(bundle: BundleRow, others: Sequence[BundleRow]) -> bool:
    return any(each.first <= bundle.sequence <= each.sequence for each in others)


class Outgoing:
    """What is sent of a file: the records that are `wanted`, and of them nothing forgotten."""

    def __init__(
        self,
        store: OpenStore,
        shelves: Sequence[VersionedShelf],
        sql: Sql,
        wanted: Callable[[bytes], bool],
        forgotten: Mapping[bytes, int],
    ) -> None:
        self._store, self._sql, self._wanted = store, sql, wanted
        self._forgotten = forgotten
        self._shelves = {each.shelf: each for each in shelves}
        self._model = active_model(sql)

    def parts(
        self, since: int, deleted: Sequence[Version], *, needed: bool
    ) -> Iterator[tuple[Bundle, bool]]:
        """Bundles without a number, and whether each is the last: what came after a stamp.

        `deleted` are deletions that are sent although the history may have dropped them. One that
        is `needed`, to stand for others that are gone, may be empty.
        """
        log = {each.stamp: each for each in logged_changes(self._sql, since)}
        bundle, size = self._first(), 0
        for sent in self._versions(since, deleted):
            if size > self._store.tuning.bundle_bytes:
                yield bundle, False
                bundle, size = _empty(bundle.header), 0
            bundle.versions.append(sent)
            size += size_of(sent)
            if sent.version.stamp in log:
                bundle.changes.append(log.pop(sent.version.stamp))
        if needed or bundle.versions or bundle.stores or bundle.projects or bundle.forgotten:
            yield bundle, True

    def _first(self) -> Bundle:
        """A bundle with all that is sent beside versions."""
        model, header = self._model, dict[str, Any](model=None)
        if model is not None:
            size, overlap = self._store.encoder.sizes(self._sql)
            header["model"] = {
                "name": model.name, "digest": model.digest, "dimension": model.dimension
            }  # fmt: skip
            header["settings"] = {
                "chunk_size": size, "chunk_overlap": overlap, "embeddings": precision(self._sql)
            }  # fmt: skip
        stores = self._sql.execute("SELECT name, metric, stamp FROM stores").fetchall()
        every = _empty(header)._replace(
            stores=stores,
            projects=known_names(self._sql),
            forgotten={item.hex(): stamp for item, stamp in self._forgotten.items()},
        )
        due = {each.record for each in records_of(every) if self._wanted(each.record)}
        return every._replace(
            stores=[each for each in stores if state.digest("store", each) in due],
            projects={
                each: names for each, names in every.projects.items()
                if state.digest("project", [each, names]) in due
            },
            forgotten={
                each: stamp for each, stamp in every.forgotten.items()
                if state.digest("forgotten", [each, stamp]) in due
            },
        )  # fmt: skip

    def _versions(self, since: int, deleted: Sequence[Version]) -> Iterator[SentVersion]:
        done = set[bytes]()
        found = versions(self._store, self._shelves.values(), self._sql, since)
        for version, until in chain(found, ((each, each.stamp) for each in deleted)):
            record = _record(version)
            if record in done or version.stamp <= self._forgotten.get(
                state.digest_of(version.item), -1
            ):
                continue
            if self._wanted(record):
                done.add(record)
                yield self._sent(version, until)

    def _sent(self, version: Version, until: int | None) -> SentVersion:
        """A version with all that belongs to it."""
        shelf, found = self._shelves[version.item.shelf], dict[int, bytes]()
        if until is None and self._model is not None and (owner := shelf.owner(version)):
            table = version.item.shelf.removesuffix("s")
            found = spans.embeddings(self._sql, table, self._model.key, owner)
            if sum(map(len, found.values())) > MOST_BYTES // 4:
                found = {}  # so large a bundle would be refused: they are made anew there
        body = b""
        if version.fields is not None:
            body = self._store.history.body(self._sql, version, shelf.body)
        before = self._sql.execute(
            "SELECT max(stamp) FROM history_versions WHERE shelf = ? AND place = ? AND name = ? "
            "AND twin = ? AND stamp < ?",
            (*version.item, version.stamp),
        ).get
        return SentVersion(version, until, -1 if before is None else before, body, found)


def versions(
    store: OpenStore, shelves: Iterable[VersionedShelf], sql: Sql, since: int
) -> Iterator[tuple[Version, int | None]]:
    """The versions that came after a stamp, and up to when each was the present one."""
    for shelf in shelves:
        for version in shelf.where(sql, f"{shelf.stamp} > ?", (since,)):
            yield version, None
    yield from store.history.all(sql, since)


def _empty(header: Mapping[str, Any]) -> Bundle:
    return Bundle("", "", 0, 0, 0, header, [], {}, {}, [], [])


def _record(version: Version) -> bytes:
    return state.digest("version", [*version.item, version.stamp, version.digest.hex()])


def records_of(bundle: Bundle) -> Iterator[SentRecord]:
    """All that is in a bundle."""
    for sent in bundle.versions:
        version = sent.version
        deleted = version.item if version.fields is None else None
        yield SentRecord(_record(version), state.digest_of(version.item), deleted, version.stamp)
    for store in bundle.stores:
        yield SentRecord(state.digest("store", store), b"", None, 0)
    for project in bundle.projects.items():
        yield SentRecord(state.digest("project", project), b"", None, 0)
    for forgotten in bundle.forgotten.items():
        yield SentRecord(state.digest("forgotten", forgotten), b"", None, 0)
