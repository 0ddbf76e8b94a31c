"""Memories as items: one form for history, undo, merge, export and import, and how it is written.

Chunks and embeddings are made first, then stored in one transaction.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mcpvectordb import dates, metadata
from mcpvectordb.config import Config
from mcpvectordb.errors import InvalidInput, ModelMissing, NotFound
from mcpvectordb.history.versions import LOCAL, Item, Version, body_name, encoded
from mcpvectordb.index.chunks import NewChunks, embedding_text
from mcpvectordb.index.encoder import waiting_note
from mcpvectordb.index.keyword import MEMORIES
from mcpvectordb.index.metadata_index import folded
from mcpvectordb.index.resident import log_changes
from mcpvectordb.index.spans import ItemText, ReceivedItem, StoredImage, TextItems
from mcpvectordb.ingest.span import Span
from mcpvectordb.memories.memory import (
    PROVENANCE_OF_SOURCE,
    SOURCES,
    Change,
    Entry,
    Image,
    Memory,
    Provenance,
    check_period,
    checked_entry,
    checked_id,
    checked_provenance,
    checked_thread,
    less_trusted,
    normalized_tags,
    one_of,
)
from mcpvectordb.memories.rows import (
    FIELDS,
    NEWEST_FIRST,
    MemoryFilter,
    by_ids,
    decoded,
    memory,
    stored_images,
)
from mcpvectordb.metadata import from_base64, storable
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore
from mcpvectordb.text.tokens import estimated_starts

SHELF = "contexts"
LONGEST_UID = 100
# Up to it a memory of another file keeps its id; all later ones of this file get greater ids.
_LARGEST_FOREIGN_ID = 10**9
_FIELDS = ("thread", "source", "metadata", "created_at", "updated_at")
# A version has those of them that are set, so those of older files have the same digest as ever.
VALIDITY = ("valid_from", "valid_to", "replaced_by", "provenance")

# The memories at a stamp, with their tags and images, under the names of the tables, so that every
# condition on memories means these. Former versions have their number, negated, as id.
_PAST = """
WITH every AS (
    SELECT -number AS id, name AS uid, stamp, digest, fields ->> '$.local.id' AS own,
        fields ->> '$.thread' AS thread, fields ->> '$.source' AS source,
        fields ->> '$.metadata' AS metadata, fields ->> '$.created_at' AS created_at,
        fields ->> '$.updated_at' AS updated_at, fields
    FROM history_versions WHERE shelf = 'contexts' AND stamp <= {limit}
    UNION ALL
    SELECT id, uid, stamp, zeroblob(17), id, thread, source, metadata, created_at, updated_at, ''
    FROM main.contexts WHERE stamp <= {limit}
), ranked AS (
    SELECT *, row_number() OVER (PARTITION BY uid ORDER BY stamp DESC, digest DESC) AS place
    FROM every
), contexts AS (SELECT * FROM ranked WHERE place = 1 AND fields IS NOT NULL),
context_tags AS (
    SELECT context, tag FROM main.context_tags
    UNION ALL SELECT -number, value FROM history_versions, json_each(fields, '$.tags')
    WHERE shelf = 'contexts' AND fields IS NOT NULL
), context_images AS (
    SELECT context FROM main.context_images
    UNION ALL SELECT -number FROM history_versions, json_each(fields, '$.images')
    WHERE shelf = 'contexts' AND fields IS NOT NULL
)
"""


class StoredValidity(NamedTuple):
    """When a memory holds, the id of the one that replaced it, and its provenance."""

    valid_from: str | None
    valid_to: str | None
    replaced_by: int | None
    provenance: Provenance


class PreparedMemories(NamedTuple):
    """The chunks of texts and, by the text of each chunk, their embeddings.

    `vectors` is None where no model is available, and incomplete where it took too long; `note`
    then has the reason.
    """

    spans: Mapping[str, Sequence[Span]]
    model: int = 0
    vectors: Mapping[str, bytes] | None = None
    note: str = ""


class MemoryItems(TextItems):
    """The memories of a file, in all their tables; methods with `sql` work in its transaction."""

    shelf, noun, table = SHELF, "memory", "context"
    key, identity = "id", "uid = :name"
    select = f"SELECT id, uid, stamp, hex(hash), {', '.join((*_FIELDS, *VALIDITY))} FROM contexts"

    @classmethod
    def version(cls, sql: Sql, row: Sequence[Any]) -> Version:
        """The version in a row, with the memory's tags and digests of its images."""
        id, uid, stamp, hash, *values = row
        own, validity = values[: len(_FIELDS)], values[len(_FIELDS) :]
        tags = sql.execute("SELECT tag FROM context_tags WHERE context = ? ORDER BY tag", (id,))
        return _version(
            uid,
            stamp,
            {
                **dict(zip(_FIELDS, own, strict=True)),
                **_given(dict(zip(VALIDITY, validity, strict=True))),
                "hash": hash,
                "tags": [tag for (tag,) in tags],
                "images": [_digest(each) for each in stored_images(sql, [id])[id]],
                LOCAL: {"id": id},
            },
        )

    @classmethod
    def stored(cls, sql: Sql, owner: int) -> ItemText:
        """The text and the images of a stored memory."""
        return super().stored(sql, owner)._replace(images=stored_images(sql, [owner])[owner])

    @classmethod
    def label(cls, sql: Sql, version: Version) -> str:
        """memory:7, by the id that it has here, or had and no other one has now; else its uid.

        A version may come from another file, where the memory has another id.
        """
        uid, had = version.item.name, version.local.get("id")
        id = sql.execute("SELECT id FROM contexts WHERE uid = ?", (uid,)).get
        if id is None and not sql.execute("SELECT 1 FROM contexts WHERE id = ?", (had,)).get:
            id = had
        return uid if id is None else f"memory:{id}"

    @classmethod
    def owner(cls, version: Version) -> int:
        """The id of a stored memory."""
        return int(version.local["id"])

    @classmethod
    def check(cls, version: Version, content: ItemText) -> None:
        """Raise an error unless a version has what a memory has."""
        fields: Mapping[str, Any] = version.fields or {}
        if checked_thread(fields["thread"]) != fields["thread"]:
            raise InvalidInput("thread is not as it is stored")
        one_of(fields["source"], SOURCES, "source")
        for name in ("created_at", "updated_at"):
            dates.check_stored(fields[name])
        _check_validity(fields)
        if fields["metadata"] is not None:
            metadata.received(fields["metadata"])
        if list(normalized_tags(fields["tags"])) != fields["tags"]:
            raise InvalidInput("tags are not as they are stored")
        storable(version.item.name, "uid", blank=False)
        checked_id(version.local["id"])
        if content.images is None or version.item.place or version.item.twin:
            raise InvalidInput("it is no memory")
        said = text_hash(content.text).hex().upper(), [_digest(each) for each in content.images]
        if said != (fields["hash"], fields["images"]):
            raise InvalidInput("its text or an image is another one")

    @classmethod
    def line(cls, sql: Sql, version: Version, model: int | None) -> dict[str, Any]:
        """A stored memory as an export has it, with its embeddings by a model."""
        id, fields = version.local["id"], version.fields or {}
        stored = cls.stored(sql, id)
        return {
            "id": id,
            "uid": version.item.name,
            **{name: fields[name] for name in _FIELDS},
            **{name: fields[name] for name in VALIDITY if name in fields},
            "metadata": decoded(fields["metadata"]),
            "tags": fields["tags"],
            "images": [
                {"data": data, "mime_type": mime_type, "metadata": decoded(said)}
                for mime_type, said, data in stored.images or ()
            ],
            **cls.text_line(sql, id, stored, model),
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any], uid: str, config: Config) -> ReceivedItem:
        """The memory of such a line, which may say anything; raises InvalidInput or TooLarge.

        `uid` is for one of an old export, which has none.
        """
        images = line.get("images", [])
        if not isinstance(images, list) or not isinstance(line.get("tags", []), list):
            raise InvalidInput("images or tags is not a list")
        entry = checked_entry(
            Entry(
                thread=line.get("thread"),  # type: ignore[arg-type]  # it is checked here
                source=line.get("source"),  # type: ignore[arg-type]
                text=line.get("text"),  # type: ignore[arg-type]
                metadata=line.get("metadata"),
                tags=line.get("tags", []),
                images=[_image_of_line(each) for each in images],
                created_at=dates.parse(line.get("created_at"), "created_at"),
                updated_at=dates.parse(line.get("updated_at"), "updated_at"),
            ),
            config,
        )
        chunks, embeddings = cls.of_text_line(entry.text, line, config)
        content = ItemText(entry.text, chunks, _to_store(entry.images or ()))
        fields = {
            "thread": entry.thread,
            "source": entry.source,
            "metadata": _encoded(entry.metadata),
            "created_at": entry.created_at,
            "updated_at": entry.updated_at,
            "hash": text_hash(entry.text).hex().upper(),
            "tags": list(entry.tags or ()),
            "images": [_digest(each) for each in content.images or ()],
            **_given({name: line.get(name) for name in VALIDITY}),
            LOCAL: {"id": line.get("id")},
        }
        name = storable(line.get("uid", ""), "uid")[:LONGEST_UID]
        version = _version(name if name.strip() else uid, 0, fields)
        cls.check(version, content)
        return ReceivedItem(version, content, embeddings)

    def __init__(self, store: OpenStore) -> None:
        self._file, self._history = store.file, store.history
        self._encoder, self._index = store.encoder, store.memories
        self._words, self._keys = store.fulltext, store.metadata_index

    def prepare(self, texts: Iterable[str], deadline: float | None) -> PreparedMemories:
        """Split texts into chunks and embed them, outside of any transaction; may raise ModelError.

        A model that is not on this machine is no error, nor one that is not done at the deadline:
        the chunks then wait for their embeddings.
        """
        spans = self.split(texts)
        passages = [
            embedding_text("", span.headings, span.header, text[span.start : span.end])
            for text in spans
            for span in spans[text]
        ]
        try:
            model, vectors = self._encoder.embed_texts(self._index, passages, deadline=deadline)
        except ModelMissing as error:
            note = waiting_note(error=str(error))
            return PreparedMemories(spans, note=note)
        waiting = len(set(passages) - vectors.keys())
        note = waiting_note(waiting) if waiting else ""
        return PreparedMemories(spans, model, vectors, note)

    def split(self, texts: Iterable[str], *, estimated: bool = False) -> dict[str, Sequence[Span]]:
        """The chunks of each distinct text; `estimated` without loading the model's tokenizer."""
        from mcpvectordb.ingest import chunking  # hooks that only read start without it

        size, overlap = self._encoder.ensure_model()

        def starts(text: str) -> list[int]:
            if estimated:
                return estimated_starts(text)
            return self._encoder.tokens().token_starts(text).tolist()  # type: ignore[no-any-return]

        return {
            text: chunking.split(
                text,
                starts=starts(text),
                size=size,
                overlap=overlap,
                kind="markdown",
            )
            for text in dict.fromkeys(texts)
        }

    def capture(
        self, sql: Sql, turns: Mapping[str, Entry], spans: Mapping[str, Sequence[Span]], now: str
    ) -> list[int]:
        """Store the checked turns that were never stored, by their uids; the new ids.

        One that was deleted since is not stored again, as long as the history knows of it.
        """
        stored = []
        for uid, entry in turns.items():
            known = "SELECT 1 FROM contexts WHERE uid = :uid UNION ALL SELECT 1 FROM "
            known += "history_versions WHERE shelf = :shelf AND name = :uid AND place = ''"
            if sql.execute(known, {"uid": uid, "shelf": SHELF}).fetchone() is None:
                id = self._add(sql, entry, spans[entry.text], now, uid)
                self._put_metadata(sql, id, entry.metadata)
                stored.append(id)
        return stored

    def add(
        self, sql: Sql, entry: Entry, prepared: PreparedMemories, now: str
    ) -> tuple[int, Literal["added", "repeated"]]:
        """Store a checked entry; the memory's id and what was done.

        An entry with the source and text of its thread's last memory updates that memory, unless
        it has a time of its own, replaces another one, or that memory holds no longer.
        """
        last = sql.execute(
            "SELECT id, source, hash, valid_to FROM contexts WHERE thread = ? "
            "ORDER BY id DESC LIMIT 1",
            (entry.thread,),
        ).fetchone()
        same = last is not None and last[1:3] == (entry.source, text_hash(entry.text))
        holds = same and (last[3] is None or last[3] >= now)
        status: Literal["added", "repeated"] = "added"
        if holds and entry.created_at is None and entry.replaces is None:
            id, status = int(last[0]), "repeated"
            self._mark(sql, id, now)
            self._put_validity(sql, id, entry)
        else:
            id = self._add(sql, entry, prepared.spans[entry.text], now)
        self._embed(sql, id, prepared)
        if entry.metadata is not None:
            self._put_metadata(sql, id, entry.metadata or None)
        _put_parts(sql, id, entry.tags, _to_store(entry.images))
        return id, status

    def _add(self, sql: Sql, entry: Entry, spans: Sequence[Span], now: str, uid: str = "") -> int:
        """Write a new memory, which ends the validity of the one that it replaces; its id."""
        fields: dict[str, Any] = {
            "thread": entry.thread,
            "source": entry.source,
            "created_at": entry.created_at or now,
            "updated_at": entry.updated_at or now,
            "valid_from": entry.valid_from,
            "valid_to": entry.valid_to,
        }
        uid, usual = uid or uuid.uuid4().hex, PROVENANCE_OF_SOURCE[entry.source]
        provenance = entry.provenance or usual
        if entry.replaces is not None:
            old = self._validity(sql, entry.replaces)
            if old.replaced_by is not None:
                raise InvalidInput(
                    f"memory:{entry.replaces} was replaced by memory:{old.replaced_by} already: "
                    "replace that one"
                )
            provenance = less_trusted(provenance, old.provenance)
            end = dates.before(entry.valid_from or fields["created_at"])
            self._mark(sql, entry.replaces, now)
            sql.execute(
                "UPDATE contexts SET valid_to = ?, replaced_by = ? WHERE id = ?",
                (min(end, old.valid_to or end), uid, entry.replaces),
            )
        fields["provenance"] = None if provenance == usual else provenance
        return self._write(sql, None, uid, fields, ItemText(entry.text, list(spans)))

    def change(
        self, sql: Sql, change: Change, prepared: PreparedMemories, now: str
    ) -> tuple[str, ...]:
        """Make a checked change; the names of the fields that were written. Raises NotFound."""
        row = sql.execute("SELECT metadata FROM contexts WHERE id = ?", (change.id,)).fetchone()
        if row is None:
            raise NotFound(f"no memory has the id {change.id}")
        self._mark(sql, change.id, now)
        values = change.metadata
        if change.metadata_patch is not None:
            values = metadata.merge(metadata.decode(row[0] or "{}"), change.metadata_patch)
        if change.text is not None:
            self._remove_text(sql, change.id)
            self._put_text(sql, change.id, change.text, prepared.spans[change.text])
            self._embed(sql, change.id, prepared)
            sql.execute(
                "UPDATE contexts SET hash = ? WHERE id = ?", (text_hash(change.text), change.id)
            )
        if values is not None:
            self._put_metadata(sql, change.id, values)
        self._put_validity(sql, change.id, change)
        _put_parts(sql, change.id, change.tags, _to_store(change.images))
        written = {
            "text": change.text,
            "metadata": values,
            "tags": change.tags,
            "images": change.images,
            "content_type": change.images,
            "embedding": None if prepared.note else change.text,
            "valid_from": change.valid_from,
            "valid_to": change.valid_to,
        }
        return tuple(field for field, given in written.items() if given is not None)

    def move(self, sql: Sql, id: int, thread: str) -> None:
        """Put a memory into another thread."""
        self._keep(sql, id)
        sql.execute(
            "UPDATE contexts SET thread = ?, stamp = ? WHERE id = ?",
            (thread, self._history.stamp(sql), id),
        )

    def delete(self, sql: Sql, ids: Iterable[int]) -> None:
        """Delete memories with their chunks, embeddings, tags and images."""
        for id in ids:
            item = self._keep(sql, id)
            self._remove_text(sql, id)
            sql.execute("DELETE FROM contexts WHERE id = ?", (id,))
            if item is not None:
                self._history.bury(sql, item)

    def put(self, sql: Sql, version: Version, content: ItemText) -> int:
        """Store a version that was checked in place of what is there of its memory; its id.

        The id is the one that it had, unless another memory of this file has it.
        """
        fields, id = version.fields or {}, version.local["id"]
        here = self.find(sql, version.item)
        if here is not None:
            self._keep(sql, here.local["id"])
            self._remove_text(sql, here.local["id"])
        # All later ids would be greater than one that another file made up.
        used = sql.execute("SELECT seq FROM sqlite_sequence WHERE name = 'contexts'").get or 0
        free = here is None and id <= max(used, _LARGEST_FOREIGN_ID)
        if not free or sql.execute("SELECT 1 FROM contexts WHERE id = ?", (id,)).get:
            id = None
        id = self._write(sql, id, version.item.name, fields, content)
        self._put_metadata(sql, id, decoded(fields["metadata"]))
        _put_parts(sql, id, fields["tags"], content.images)
        return id

    def _write(
        self,
        sql: Sql,
        id: int | None,
        uid: str,
        fields: Mapping[str, Any],
        content: ItemText,
    ) -> int:
        """Write a memory anew, or in place of the one with this uid; its id."""
        columns = {name: fields[name] for name in ("thread", "source", "created_at", "updated_at")}
        columns |= {name: fields.get(name) for name in VALIDITY}
        columns |= {"hash": text_hash(content.text), "stamp": self._history.stamp(sql)}
        changed = ", ".join(f"{name} = excluded.{name}" for name in columns)
        columns |= {"id": id, "uid": uid}
        written = int(
            sql.execute(
                f"INSERT INTO contexts ({', '.join(columns)}) "
                f"VALUES ({', '.join('?' * len(columns))}) "
                f"ON CONFLICT (uid) DO UPDATE SET {changed} RETURNING id",
                tuple(columns.values()),
            ).get
        )
        self._put_text(sql, written, content.text, content.spans)
        log_changes(sql, MEMORIES, [written])
        return written

    def _mark(self, sql: Sql, id: int, now: str) -> None:
        """Note the time of a change, before which the history keeps the memory as it is."""
        self._keep(sql, id)
        sql.execute(
            "UPDATE contexts SET updated_at = ?, stamp = ? WHERE id = ?",
            (now, self._history.stamp(sql), id),
        )

    def _keep(self, sql: Sql, id: int) -> Item | None:
        """Keep a memory as it is, before it changes or goes; what it is, None if not there."""
        log_changes(sql, MEMORIES, [id])
        found = self.by_key(sql, id)
        if found is None:
            return None
        known = self._history.has_body(sql, found.body)
        self._history.keep(sql, found, None if known else self.body(sql, found))
        return found.item

    def _remove_text(self, sql: Sql, id: int) -> None:
        self._index.remove(sql, id)
        self._words.remove(sql, id)

    def _put_text(self, sql: Sql, id: int, text: str, spans: Sequence[Span]) -> None:
        self._index.put(sql, [NewChunks(id, "", text, spans)])
        self._words.put(sql, id, text)

    def _embed(self, sql: Sql, id: int, prepared: PreparedMemories) -> None:
        """Store the prepared embeddings of a memory's chunks; chunks that have one keep it."""
        vectors = prepared.vectors
        if vectors is None:
            return
        rows = sql.execute("SELECT id FROM context_chunks WHERE owner = ?", (id,))
        passages = [
            (each.id, each.embedding_text)
            for each in self._index.passages(sql, [chunk for (chunk,) in rows])
        ]
        self._index.settle(
            sql,
            prepared.model,
            ((chunk, vectors[text]) for chunk, text in passages if text in vectors),
        )

    def _put_metadata(self, sql: Sql, id: int, values: Mapping[str, Any] | None) -> None:
        sql.execute(
            "UPDATE contexts SET metadata = ?, folded = ? WHERE id = ?",
            (_encoded(values), folded(self._keys.names(sql), values), id),
        )

    def _validity(self, sql: Sql, id: int) -> StoredValidity:
        """When a memory holds, what replaced it, and its provenance; raises NotFound."""
        row = sql.execute(
            "SELECT x.valid_from, x.valid_to, r.id, x.provenance, x.source FROM contexts x "
            "LEFT JOIN contexts r ON r.uid = x.replaced_by WHERE x.id = ?",
            (id,),
        ).fetchone()
        if row is None:
            raise NotFound(f"no memory has the id {id}")
        start, end, replaced_by, provenance, source = row
        return StoredValidity(start, end, replaced_by, provenance or PROVENANCE_OF_SOURCE[source])

    def _put_validity(self, sql: Sql, id: int, given: Entry | Change) -> None:
        """Write the bounds that are given, and the provenance if a new text is less trusted.

        A change that removes the end lets a memory hold again, which was not replaced then; no
        other end is later than the replacement.
        """
        here = self._validity(sql, id)
        start = here.valid_from if given.valid_from is None else given.valid_from or None
        end = here.valid_to if given.valid_to is None else given.valid_to or None
        if given.valid_from is not None or given.valid_to is not None:
            check_period(start, end)
            if here.replaced_by is not None and end and here.valid_to and end > here.valid_to:
                raise InvalidInput(
                    f"memory:{id} was replaced by memory:{here.replaced_by}, so it cannot hold "
                    "longer"
                )
            sql.execute(
                "UPDATE contexts SET valid_from = ?, valid_to = ?, "
                "replaced_by = CASE WHEN ? IS NOT NULL THEN replaced_by END WHERE id = ?",
                (start, end, end, id),
            )
        rewritten = isinstance(given, Change) and given.text is not None
        if given.provenance is not None and rewritten:
            provenance = less_trusted(given.provenance, here.provenance)
            if provenance != here.provenance:
                sql.execute("UPDATE contexts SET provenance = ? WHERE id = ?", (provenance, id))

    def restore(self, version: Version, content: ItemText) -> None:
        """Store a version as the present one; its embeddings are made again where none is known."""
        with self._file.writing() as sql:
            self.put(sql, version, content)

    def remove(self, item: Item) -> None:
        """Delete a memory, if it is there."""
        with self._file.writing() as sql:
            found = self.find(sql, item)
            self.delete(sql, [found.local["id"]] if found else [])

    def past(
        self,
        sql: Sql,
        as_of: str | int,
        chosen: MemoryFilter,
        window: tuple[int, int],
        images: bool,
    ) -> list[Memory]:
        """The memories at a time, or after a change, that match all filters, newest first."""
        past = _PAST.format(limit=self._history.limit(sql, as_of))
        rows = sql.execute(
            f"{past} SELECT x.id FROM contexts x WHERE {chosen.condition} {NEWEST_FIRST} "
            "LIMIT ? OFFSET ?",
            (*chosen.bindings, *window),
        )
        ids = [id for (id,) in rows]
        present = by_ids(sql, self._index, [id for id in ids if id > 0], images=images)
        return [present[id] if id > 0 else self._former(sql, -id, images) for id in ids]

    def _former(self, sql: Sql, number: int, images: bool) -> Memory:
        """The memory that a version in the history was."""
        past = self._history.former(sql, number)
        content = self.checked(past, self._history.body(sql, past, self.body))
        fields = {
            **(past.fields or {}),
            "id": past.local["id"],
            "content_type": "multimodal" if content.images else "text",
        }
        row = [*(fields[name] for name in FIELDS), fields["metadata"]]
        validity = {name: fields.get(name) for name in VALIDITY}
        validity["replaced_by"] = sql.execute(
            "SELECT id FROM contexts WHERE uid = ?", (fields.get("replaced_by"),)
        ).get
        shown = content.images if images else ()
        return memory(row, content.text, fields["tags"], shown, validity)


def text_hash(text: str) -> bytes:
    """The column `hash` of a memory."""
    return hashlib.sha256(text.encode()).digest()


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are set."""
    return {name: value for name, value in fields.items() if value is not None}


def _check_validity(fields: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless what a version says of its validity is as it is stored."""
    for name in ("valid_from", "valid_to"):
        if name in fields:
            dates.check_stored(fields[name])
    checked_provenance(fields.get("provenance"))
    if "replaced_by" in fields:
        storable(fields["replaced_by"], "replaced_by", blank=False)


def _to_store(images: Sequence[Image] | None) -> list[StoredImage] | None:
    """Images as they are stored; None if they were not given."""
    if images is None:
        return None
    return [StoredImage(each.mime_type, _encoded(each.metadata), each.data) for each in images]


def _encoded(values: Mapping[str, Any] | None) -> str | None:
    return None if values is None else metadata.encode(values)


def _version(uid: str, stamp: int, fields: Mapping[str, Any]) -> Version:
    """A version, whose body is named by the digests of what it holds."""
    body = body_name(encoded([fields["hash"], fields["images"]]).encode())
    return Version(Item(SHELF, "", uid), stamp, fields, body)


def _digest(image: StoredImage) -> str:
    return hashlib.sha256(encoded([*image[:2]]).encode() + image.data).hexdigest()


def _image_of_line(line: object) -> Image:
    if not isinstance(line, Mapping):
        raise InvalidInput("an image is not an object")
    return Image(
        data=from_base64(line.get("data"), "an image"),
        mime_type=storable(line.get("mime_type"), "mime_type", blank=False),
        metadata=line.get("metadata"),
    )


def _put_parts(
    sql: Sql, id: int, tags: Sequence[str] | None, images: Sequence[StoredImage] | None
) -> None:
    """Replace a memory's tags and images; None leaves them as they are."""
    if tags is not None:
        sql.execute("DELETE FROM context_tags WHERE context = ?", (id,))
        sql.executemany(
            "INSERT INTO context_tags (context, tag) VALUES (?, ?)", ((id, tag) for tag in tags)
        )
    if images is not None:
        sql.execute("DELETE FROM context_images WHERE context = ?", (id,))
        sql.executemany(
            "INSERT INTO context_images (context, position, mime_type, metadata, data) "
            "VALUES (?, ?, ?, ?, ?)",
            ((id, position, *image) for position, image in enumerate(images)),
        )
