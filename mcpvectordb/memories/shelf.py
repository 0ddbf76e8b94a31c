"""`Database.memories`: texts of agents and users in threads, with filters, search and counts."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from mcpvectordb import dates, filters
from mcpvectordb.errors import InvalidInput, MCPVectorDBError, NotFound, TooLarge, quoted
from mcpvectordb.filters import Where
from mcpvectordb.index.chunks import ACTIVE_KEY
from mcpvectordb.memories import rows
from mcpvectordb.memories.items import MemoryItems, PreparedMemories
from mcpvectordb.memories.memory import (
    SOURCES,
    Change,
    Entry,
    Image,
    Memory,
    MemorySource,
    MemoryStats,
    Near,
    Outcome,
    Provenance,
    Stored,
    Thread,
    Turn,
    Updated,
    Words,
    checked_change,
    checked_entry,
    checked_ids,
    checked_thread,
    checked_threads,
    left_out,
    one_of,
    without_secrets,
)
from mcpvectordb.memories.rows import FilterArguments, MemoryFilter
from mcpvectordb.metadata import checked_page, storable, whole_number
from mcpvectordb.ranking.why_empty import NO_MATCH, unknown_name, why_empty
from mcpvectordb.records import RRF_K, Backlog, Fusion, Mode, Page, Results
from mcpvectordb.storage.dialect import Sql
from mcpvectordb.store import OpenStore, every

if TYPE_CHECKING:
    from mcpvectordb.memories.search import MemorySearch

Item = TypeVar("Item", Entry, Change)
Result = TypeVar("Result")

NEAR_MEMORIES = 5  # that are compared with a new one
# The fields of a thread in SQL.
_THREAD = {
    "name": "thread",
    "memories": "count(*)",
    "sources": "count(DISTINCT source)",
    "multimodal": "count(*) FILTER (WHERE id IN (SELECT context FROM context_images))",
    "first_at": "min(created_at)",
    "last_at": "max(created_at)",
    "last_id": "max(id)",
}


class Memories:
    """Adds, changes, deletes, lists and searches memories; see `Database.memories`."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._file, self._config, self._encoder = store.file, store.config, store.encoder
        self._index, self._keys, self._history = store.memories, store.metadata_index, store.history
        self._reranker, self.versioned = store.reranker, MemoryItems(store)
        # Returns the time at which memories are created and updated; tests set another one.
        self._clock: Callable[[], datetime] = partial(datetime.now, UTC)

    @cached_property
    def _search(self) -> MemorySearch:
        from mcpvectordb.memories.search import MemorySearch

        return MemorySearch(self._store)

    # Writing.

    def add(
        self,
        thread: str,
        source: MemorySource,
        text: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        images: Sequence[Image] | None = None,
        valid_from: str | None = None,
        valid_to: str | None = None,
        replaces: int | None = None,
        provenance: Provenance | None = None,
    ) -> Stored:
        """Store a text of a source ("user" or "agent") in a thread.

        valid_from, valid_to   when it holds, both ends included: 2025-11-29, 2025-11, 2025,
                               2025-11-29T10:00:00Z, today … Without a start it holds from now on.
        replaces               the id of the memory whose place it takes, which holds up to the
                               start of this one; InvalidInput if that was replaced already
        provenance             who or what it is from: "person" (of a user, if not given), "agent"
                               (of an agent), "document" or "web". One that replaces another has
                               the less trusted of both, one that is repeated keeps its own.

        If the last memory of the thread has the same source and text, no new one is stored: its
        `updated_at` is set, and the metadata, tags and images that are given replace its own. If
        the model fails to embed the text, nothing is stored and EmbeddingFailed is raised. If the
        model is not on this machine, the memory is stored without an embedding, and only text
        search finds it until `Database.embed_pending()` has run.

        Secrets (keys, tokens, passwords, what stands between <private> and </private>) are left out
        of text and metadata before anything is written; a marker such as [redacted: AWS key] takes
        their place, and `redacted` of the result says so.
        """
        entry = Entry(
            thread=thread,
            source=source,
            text=text,
            metadata=metadata,
            tags=tags,
            images=images,
            valid_from=valid_from,
            valid_to=valid_to,
            replaces=replaces,
            provenance=provenance,
        )
        return self._add([self.checked(entry)], self._encoder.deadline())[0]

    def add_many(self, entries: Sequence[Entry], *, atomic: bool = True) -> list[Outcome[Stored]]:
        """Store entries in their order, as `add` does.

        All are stored or none; with `atomic=False`, each that can be stored is.
        """
        deadline = self._encoder.deadline()
        return _batch(entries, self.checked, lambda some: self._add(some, deadline), atomic)

    def capture(self, thread: str, turns: Sequence[Turn]) -> tuple[int, str]:
        """Store the turns of a conversation that were not stored before, in one transaction.

        Returns how many were, and that secrets were left out of them ("" if none were). A turn is
        known by its id, in whatever thread, also after it was deleted. Nothing is embedded: that is
        done by `Database.embed_pending`, a server, or the next search. Turns that cannot be stored,
        because they are empty or too long, are left out.
        """
        entries: dict[str, Entry] = {}
        kinds: tuple[str, ...] = ()
        now = self._now()
        for turn in turns:
            with contextlib.suppress(InvalidInput, TooLarge):
                time = dates.parse(turn.time, "time") if turn.time else now
                entry, found = without_secrets(
                    self.checked(
                        Entry(
                            thread=thread,
                            source=turn.source,
                            text=turn.text,
                            created_at=min(time, now),  # a clock that is ahead would stay newest
                            metadata={"turn": turn.id, "end": turn.end},
                        )
                    )
                )
                entries[hashlib.sha256(turn.id.encode()).hexdigest()[:32]] = entry
                kinds += found
        if not entries:
            return 0, ""
        spans = self.versioned.split((each.text for each in entries.values()), estimated=True)
        with self._file.writing() as sql:
            self._keys.settle(sql)
            stored = self.versioned.capture(sql, entries, spans, now)
        return len(stored), left_out(kinds) if stored else ""

    def captured_to(self, thread: str) -> int:
        """Where in its transcript the last stored turn of a thread ends; 0 without one."""
        with self._file.reading() as sql:
            end = "max(CAST(metadata ->> '$.end' AS INTEGER))"
            return int(
                sql.execute(f"SELECT {end} FROM contexts WHERE thread = ?", (thread,)).get or 0
            )

    def update(
        self,
        id: int,
        *,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        metadata_patch: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        images: Sequence[Image] | None = None,
        valid_from: str | None = None,
        valid_to: str | None = None,
        provenance: Provenance | None = None,
    ) -> Updated:
        """Change the given fields of a memory; raises NotFound.

        `metadata`, `tags` and `images` replace the old value; `metadata_patch` is merged into the
        metadata (RFC 7396: null removes a key). Id, thread, source and `created_at` never change.
        For `valid_from` and `valid_to` see `add`; "" removes a bound. A memory without an end is no
        longer replaced; one that is replaced cannot get a later end. `provenance` is that of the
        new text: the memory keeps the less trusted of the old one and this, and without it the old
        one. Secrets are left out as by `add`.
        """
        change = Change(
            id=id,
            text=text,
            metadata=metadata,
            metadata_patch=metadata_patch,
            tags=tags,
            images=images,
            valid_from=valid_from,
            valid_to=valid_to,
            provenance=provenance,
        )
        return self._update([self.checked(change)], self._encoder.deadline())[0]

    def update_many(
        self, changes: Sequence[Change], *, atomic: bool = True
    ) -> list[Outcome[Updated]]:
        """Make changes in their order, as `update` does.

        All are made or none; with `atomic=False`, each that can be made is.
        """
        deadline = self._encoder.deadline()
        return _batch(changes, self.checked, lambda some: self._update(some, deadline), atomic)

    def checked(self, item: Item) -> Item:
        """The entry as `add` would store it, or the change as `update` would make it.

        Raises what `add` or `update` would raise.
        """
        if isinstance(item, Entry):
            return checked_entry(item, self._config)
        change = checked_change(item, self._config)
        # Checked here as well as in the transaction, before a text is embedded in vain.
        with self._file.reading(limited=False) as sql:
            if not sql.execute("SELECT 1 FROM contexts WHERE id = ?", (change.id,)).fetchone():
                raise NotFound(f"no memory has the id {change.id}")
        return change

    def delete(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        threads: Iterable[str] | None = None,
        source: MemorySource | None = None,
        older_than_days: int | None = None,
    ) -> int:
        """Delete the memories that match all of the given criteria; the number of deleted ones.

        Raises InvalidInput without criteria, and for a source alone.
        """
        if ids is None and threads is None and older_than_days is None:
            raise InvalidInput(
                "say which memories to delete: by ids, threads or older_than_days"
                + ("; a source alone would delete too much" if source is not None else "")
            )
        chosen: dict[str, Any] = {}
        if ids is not None:
            chosen["id IN (SELECT value FROM json_each(?))"] = json.dumps(checked_ids(ids))
        if threads is not None:
            names = json.dumps(checked_threads(threads))
            chosen["thread IN (SELECT value FROM json_each(?))"] = names
        if source is not None:
            chosen["source = ?"] = one_of(source, SOURCES, "source")
        if older_than_days is not None:
            chosen["created_at < ?"] = self._days_ago(older_than_days)
        with self._file.writing() as sql:
            select = f"SELECT id FROM contexts WHERE {' AND '.join(chosen)}"
            found = [id for (id,) in sql.execute(select, tuple(chosen.values()))]
            self.versioned.delete(sql, found)
        return len(found)

    def rename_threads(self, project: str, to: str, *, most: int) -> int:
        """Rename the threads NAME and NAME/… of a project, as far as `most` memories are in them.

        The number of memories that were moved: call it until that is 0.
        """
        chosen = rows.compile_filter(project=project, dialect=self._file.dialect)
        with self._file.writing() as sql:
            found = sql.execute(
                f"SELECT x.id, x.thread FROM contexts x WHERE {chosen.condition} LIMIT ?",
                (*chosen.bindings, most),
            ).fetchall()
            for id, thread in found:
                self.versioned.move(sql, id, checked_thread(to + thread[len(project) :]))
        return len(found)

    # Reading.

    @overload
    def get(self, ids: int, *, images: bool = True, as_of: str | int | None = None) -> Memory: ...
    @overload
    def get(
        self, ids: Iterable[int], *, images: bool = True, as_of: str | int | None = None
    ) -> list[Memory]: ...
    def get(
        self, ids: int | Iterable[int], *, images: bool = True, as_of: str | int | None = None
    ) -> Memory | list[Memory]:
        """The memory with this id (raises NotFound), or those of several ids that there are.

        With `as_of` they are as they were at a time (2026-11-29, today, 2d …) or right after a
        change, given by its number in `Database.history`.
        """
        wanted = checked_ids(ids)
        with self._file.reading() as sql:
            if as_of is None:
                found = rows.by_ids(sql, self._index, wanted, images=images)
            else:
                chosen = MemoryFilter(
                    "x.own IN (SELECT value FROM json_each(?))", (json.dumps(wanted),)
                )
                then = self.versioned.past(sql, as_of, chosen, (len(wanted), 0), images)
                found = {each.id: each for each in then}
        if not isinstance(ids, int):
            return [found[id] for id in dict.fromkeys(wanted) if id in found]
        if ids not in found:
            raise NotFound(f"no memory has the id {ids}")
        return found[ids]

    def __iter__(self) -> Iterator[Memory]:
        """All memories without their images, the oldest first."""

        def after(sql: Sql, id: int, most: int) -> list[tuple[int, Memory]]:
            select = f"{rows.SELECT} WHERE x.id > ? ORDER BY x.id LIMIT ?"
            found = rows.read(sql, self._index, sql.execute(select, (id, most)).fetchall())
            return [(each.id, each) for each in found]

        return every(self._store, after)

    def browse(
        self,
        *,
        limit: int = 10,
        offset: int = 0,
        images: bool = False,
        explain: bool = False,
        as_of: str | int | None = None,
        **which: Unpack[FilterArguments],
    ) -> Page[Memory]:
        """The memories that match all filters, newest first; `explain` adds SQLite's query plan.

        For `as_of`, which explains nothing, see `get`.

        thread          the thread they are in
        project         they are in the thread of this name, or in one that begins with it and a
                        slash; see `Database.projects`
        source          "user" or "agent"
        tags            they have at least one of these
        content_type    "multimodal" with images, "text" without
        where           conditions on id, thread, source, content_type, created_at, updated_at and
                        metadata, as for documents
        start, end      they were created in this period, both ends included: 2025-11-29,
                        2025-11-29T10:00:00+02:00 …
        """
        checked_page(limit, offset)
        window = (limit, offset)
        with self._file.reading() as sql:
            wide = rows.is_wide(sql, which.get("project"))
            chosen = rows.compile_filter(**which, wide=wide, dialect=self._file.dialect)
            if as_of is not None:
                past = self.versioned.past(sql, as_of, chosen, window, images)
                return Page(items=tuple(past))
            chosen = chosen.using_indexes(self._keys.names(sql))
            from mcpvectordb.ranking.ranker import StatementLog

            with StatementLog(sql, explain) as log:
                found = sql.execute(
                    f"{rows.SELECT} WHERE {chosen.condition} {rows.NEWEST_FIRST} LIMIT ? OFFSET ?",
                    (*chosen.bindings, *window),
                ).fetchall()
            return Page(
                items=tuple(rows.read(sql, self._index, found, images=images)),
                explained=log.explained(len(found)) if explain else None,
            )

    def count(self, **which: Unpack[FilterArguments]) -> int:
        """The number of memories that match all filters, which are those of `browse`."""
        chosen = rows.compile_filter(**which, dialect=self._file.dialect)
        with self._file.reading() as sql:
            return chosen.using_indexes(self._keys.names(sql)).count(sql, "contexts x")

    def search(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        words: Words = "any",
        limit: int = 10,
        offset: int = 0,
        fusion: Fusion = "convex",
        rrf_k: int = RRF_K,
        rerank: bool = False,
        images: bool = False,
        highlight: bool = False,
        explain: bool = False,
        newer: str | None = None,
        as_of: str | None = None,
        **which: Unpack[FilterArguments],
    ) -> Results[Memory]:
        """The best memories for a query, by words ("text"), by meaning ("vector"), or by both.

        words    how the words of the query are read. "any": as in documents, the more of them the
                 better, with "quoted phrases" and -excluded words; "match": all words, or any if no
                 memory has all; "prefix": all, each as the beginning of a word; "phrase": all, one
                 after the other; "boolean": with AND, OR, NOT, parentheses and "phrases"
        fusion   "convex" combines the scores by words and by meaning, "rrf" their reciprocal ranks,
                 where `rrf_k` is the constant: the larger, the less the first ranks stand out
        rerank   let the cross-encoder, where it is installed, order the results; where it did not,
                 `reasons` says why
        newer    prefer newer memories: with every such half-life (12h, 30d, 1y …) since one was
                 changed last its score is halved
        as_of    find what held at a time (2025-11-29, 2025, 7d …; of a period its end), and was
                 stored by then or says that it did; "any": whenever it holds, also what was
                 replaced. Not given: what holds now
        which    the filters of `browse`; they apply before the ranking

        Where different speakers take turns in a thread, a hybrid search (`words` "any", `fusion`
        "convex") also counts the words around a memory, and a question that names a speaker or a
        time prefers what was said by them, or then.

        A score is 0 to 1; hybrid scores compare with those of the same query only. `relevance`
        compares between queries: it is the probability that a judge would call a memory relevant,
        `confidence` the same in a word; `verdict` is a sentence when nothing relevant was found.
        The results say which legs ran, why one did not, and in `backlog` how many passages are not
        embedded yet. If there are none, their `note` says why.
        """
        english = self._config.language.casefold() == "english"
        now = self._clock()
        from mcpvectordb.memories.search import MemoryQuestion
        from mcpvectordb.ranking.ranker import Recency

        asked = MemoryQuestion(
            text=storable(query, "query"),
            today=now.date(),
            mode=mode,
            limit=limit,
            offset=offset,
            fusion=fusion,
            rrf_k=rrf_k,
            rerank=rerank,
            recency=Recency.parse(newer, now),
            explain=explain,
            words=words,
            stemmed=english and words != "prefix",
            images=images,
            highlight=highlight,
        )
        with self._file.deadline(), self._file.reading() as sql:
            then = rows.then(sql, as_of, self._clock())
            wide = rows.is_wide(sql, which.get("project"))
            chosen = rows.compile_filter(**which, **then, wide=wide, dialect=self._file.dialect)
            found = self._search.search(asked, chosen)
        if found.hits:
            return found
        note = self._why_empty(chosen, which.get("project"))
        note = note or found.note or (NO_MATCH if chosen.conditions else "")
        return replace(found, note=note)

    def near(self, text: str, *, project: str | None = None) -> list[Near]:
        """The memories that hold now and say nearly the same as a text, best first.

        Ask before you add one: it may be known, or `contradiction` may show that one of both is
        wrong or out of date. Values are compared by their spelling, so it is a hint and no proof.
        They are those of a project, or of all.
        """
        from mcpvectordb.memories import near
        from mcpvectordb.text.secrets import redacted

        text = redacted(text).text  # as it would be stored
        found = []
        for hit in self.search(text[: near.COMPARED], limit=NEAR_MEMORIES, project=project):
            theirs = hit.item.text
            by_meaning = (
                hit.relevance is not None and (hit.scores.vector or 0.0) >= near.NEAR_COSINE
            )
            differs = near.difference(text, theirs)
            if by_meaning or differs is not None or near.nearly_same(text, theirs):
                same = near.plain(text) == near.plain(theirs)
                found.append(
                    Near(memory=hit.item, same=same, contradiction=None if same else differs)
                )
        return found

    def why_empty(self, **which: Unpack[FilterArguments]) -> str:
        """Why no memory matches, as far as the filters by themselves explain it, or "".

        It names a thread, tag or metadata key that does not exist, with similar ones. `search` puts
        it into the `note` of empty results.
        """
        chosen = rows.compile_filter(**which, dialect=self._file.dialect)
        return self._why_empty(chosen, which.get("project"))

    def _why_empty(self, chosen: MemoryFilter, project: str | None) -> str:
        with self._file.reading() as sql:
            reasons = [why_empty(sql, rows.items(self._file.dialect), chosen.conditions)]
            if project is not None and not self.count(project=project):
                reasons.append(f"nothing is remembered in the project {quoted(project)}")
            if chosen.tags:
                known = [tag for (tag,) in sql.execute("SELECT DISTINCT tag FROM context_tags")]
                if not set(chosen.tags) & set(known):
                    reasons += [unknown_name("tag", tag, known) for tag in chosen.tags]
        return "; ".join(filter(None, reasons))

    def backlog(self) -> Backlog:
        """How many passages of memories there are and wait for their embedding, if any does."""
        return self._encoder.backlog(self._index)

    def threads(self) -> list[Thread]:
        """All threads, the one with the newest memory first."""
        with self._file.reading() as sql:
            found = sql.execute(
                f"SELECT {', '.join(_THREAD.values())} FROM contexts "
                "GROUP BY thread ORDER BY max(created_at) DESC, max(id) DESC"
            )
            return [Thread(**dict(zip(_THREAD, row, strict=True))) for row in found]

    def values(self, field: str, **which: Unpack[FilterArguments]) -> dict[Any, int]:
        """How many memories have each value of a field, the most frequent first.

        The fields are those of a filter (`browse`), `tag`, and `day` (2025-11-29, UTC).
        """
        chosen = rows.compile_filter(**which, dialect=self._file.dialect)
        tags = " JOIN context_tags t ON t.context = x.id" if field == "tag" else ""
        days = "substr(x.created_at, 1, 10)"
        known = {**rows.fields(self._file.dialect), "tag": "t.tag", "day": days}
        with self._file.reading() as sql:
            return chosen.values(sql, f"contexts x{tags}", field, known)

    def statistics(self) -> MemoryStats:
        """Counts of memories, threads, tags and images, and what cannot run on this machine."""
        unavailable = {
            "vector": self._encoder.missing_reason(),
            "rerank": self._reranker.missing_reason(),
        }
        with self._file.reading() as sql:
            by_source = dict(
                sql.execute("SELECT source, count(*) FROM contexts GROUP BY source ORDER BY source")
            )
            images, multimodal = sql.execute(
                "SELECT count(*), count(DISTINCT context) FROM context_images"
            ).get
            waiting = sql.execute(
                "SELECT count(DISTINCT c.owner) FROM context_pending p JOIN context_chunks c ON "
                f"c.id = p.chunk WHERE p.model = {ACTIVE_KEY}"
            ).get
            total = sum(by_source.values())
            kinds = {"text": total - multimodal, "multimodal": multimodal}
            return MemoryStats(
                memories=total,
                by_source=by_source,
                by_content_type={kind: count for kind, count in kinds.items() if count},
                images=images,
                tags=sql.execute("SELECT count(DISTINCT tag) FROM context_tags").get,
                threads=sql.execute("SELECT count(DISTINCT thread) FROM contexts").get,
                chunks=sql.execute("SELECT count(*) FROM context_chunks").get,
                embedded=total - waiting,
                unavailable={leg: reason for leg, reason in unavailable.items() if reason},
                most_active_threads=_most_frequent(sql, "contexts", "thread", 5),
                top_tags=_most_frequent(sql, "context_tags", "tag", 10),
            )

    def problems(self, where: Where | None) -> list[str]:
        """One message for each invalid condition of a `where`; empty if it can be used."""
        return filters.problems(where, rows.fields(self._file.dialect), rows.KINDS)

    # Indexed metadata keys.

    def indexed_keys(self) -> tuple[str, ...]:
        """The metadata keys that have an index, which filters by `eq` and `in` use."""
        with self._file.reading() as sql:
            return self._keys.names(sql)

    def index_keys(self, keys: Iterable[str]) -> None:
        """Index these metadata keys and no others; a dot in one descends into an object."""
        with self._file.writing() as sql:
            self._keys.use(sql, list(keys))

    def _add(self, given: Sequence[Entry], deadline: float | None) -> list[Stored]:
        cleaned = [without_secrets(entry) for entry in given]
        entries = [entry for entry, _ in cleaned]
        prepared = self.versioned.prepare((entry.text for entry in entries), deadline)
        with self._file.writing() as sql:
            self._keys.settle(sql)
            done = [self.versioned.add(sql, entry, prepared, self._now()) for entry in entries]
            stored = rows.by_ids(sql, self._index, [id for id, _ in done], images=False)
        self._embed_rest(prepared)
        return [
            Stored(status=status, memory=stored[id], note=prepared.note, redacted=left_out(kinds))
            for (id, status), (_, kinds) in zip(done, cleaned, strict=True)
        ]

    def _update(self, given: Sequence[Change], deadline: float | None) -> list[Updated]:
        cleaned = [without_secrets(change) for change in given]
        changes = [change for change, _ in cleaned]
        prepared = self.versioned.prepare(
            (change.text for change in changes if change.text is not None), deadline
        )
        with self._file.writing() as sql:
            fields = [
                self.versioned.change(sql, change, prepared, self._now()) for change in changes
            ]
            stored = rows.by_ids(sql, self._index, [change.id for change in changes], images=False)
        self._embed_rest(prepared)
        return [
            Updated(
                memory=stored[change.id],
                fields=written,
                note=prepared.note if change.text is not None else "",
                redacted=left_out(kinds),
            )
            for (change, kinds), written in zip(cleaned, fields, strict=True)
        ]

    def _embed_rest(self, prepared: PreparedMemories) -> None:
        """Have chunks that wait embedded in the background, if there is one."""
        if prepared.note and self._encoder.background is not None:
            self._encoder.background.ask()

    def _now(self) -> str:
        return dates.stored(self._clock())

    def _days_ago(self, days: int) -> str:
        """The stored form of the time this many days ago; "", which sorts first, before year 1."""
        checked = whole_number(days, "older_than_days", 1)
        try:
            return dates.stored(self._clock() - timedelta(days=checked))
        except OverflowError:
            return ""


def _batch(
    items: Sequence[Item],
    check: Callable[[Item], Item],
    apply: Callable[[Sequence[Item]], list[Result]],
    atomic: bool,
) -> list[Outcome[Result]]:
    """Check all items, then apply them at once, or each by itself if the batch is not `atomic`."""
    if not atomic:
        return [
            _outcome(index, lambda item: apply([check(item)])[0], item)
            for index, item in enumerate(items)
        ]
    checked = [_outcome(index, check, item) for index, item in enumerate(items)]
    if errors := [(each.index, each.error) for each in checked if each.error is not None]:
        index, error = errors[0]
        raise type(error)(
            f"{len(errors)} of {len(items)} items cannot be stored, so none was; "
            f"the first is at index {index}: {error}"
        )
    usable = [each.result for each in checked if each.result is not None]
    return [Outcome(index=index, result=result) for index, result in enumerate(apply(usable))]


def _outcome(index: int, function: Callable[[Item], Result], item: Item) -> Outcome[Result]:
    """The outcome of calling `function`; errors of this library are caught."""
    try:
        return Outcome(index=index, result=function(item))
    except MCPVectorDBError as error:
        return Outcome(index=index, error=error)


def _most_frequent(sql: Sql, table: str, column: str, limit: int) -> tuple[tuple[str, int], ...]:
    """(value, count) of the most frequent values of a column."""
    return tuple(
        sql.execute(
            f"SELECT {column}, count(*) FROM {table} GROUP BY {column} ORDER BY count(*) DESC, "
            f"{column} LIMIT ?",
            (limit,),
        )
    )
