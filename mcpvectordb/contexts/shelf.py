"""The contexts shelf: what agents and their users said, in threads, found again by words, by
meaning and by filters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, Unpack

import apsw

from mcpvectordb import dates, filters
from mcpvectordb.config import Config
from mcpvectordb.contexts import search as searching
from mcpvectordb.contexts.context import (
    Change,
    Context,
    ContextStats,
    Entry,
    Image,
    Outcome,
    Page,
    Stored,
    Thread,
    Updated,
)
from mcpvectordb.contexts.fulltext import ContextFulltext
from mcpvectordb.contexts.metadata_index import MetadataIndex
from mcpvectordb.contexts.rows import (
    FIELDS,
    NEWEST_FIRST,
    SELECT,
    Filters,
    by_ids,
    choose,
    hydrated,
)
from mcpvectordb.contexts.search import REREAD, Found, Question, excerpt
from mcpvectordb.contexts.validation import (
    SOURCES,
    checked_change,
    checked_entry,
    checked_ids,
    checked_threads,
    one_of,
    whole_number,
)
from mcpvectordb.contexts.write import Writer
from mcpvectordb.errors import InvalidInput, MCPVectorDBError, NotFound
from mcpvectordb.filters import Where
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.metadata import storable
from mcpvectordb.records import Hit, Results
from mcpvectordb.search.explain import StatementLog, together
from mcpvectordb.search.highlight import highlight
from mcpvectordb.search.hybrid import checked_window
from mcpvectordb.search.rerank import CachedReranker
from mcpvectordb.storage.file import File

Item = TypeVar("Item", Entry, Change)
Result = TypeVar("Result")


class Contexts:
    """`Database.contexts`."""

    def __init__(
        self,
        file: File,
        config: Config,
        encoder: Encoder,
        index: ChunkIndex,
        words: ContextFulltext,
        keys: MetadataIndex,
        reranking: CachedReranker,
    ) -> None:
        self._file, self._config, self._encoder, self._reranking = file, config, encoder, reranking
        self._index, self._words, self._keys = index, words, keys
        self._writer = Writer(encoder, index, words, keys)

    # Writing.

    def add(
        self,
        thread: str,
        source: str,
        text: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        images: Sequence[Image] | None = None,
    ) -> Stored:
        """Store what a source ("user" or "agent") said in a thread.

        A text that repeats the thread's last one by the same source is not stored again: that one's
        time is renewed, and its metadata, tags and images are replaced by those given. A text that
        cannot be embedded because the model fails is not stored; where no model is to be had it is,
        and found by words until `Database.embed_pending()`.
        """
        entry = Entry(
            thread=thread, source=source, text=text, metadata=metadata, tags=tags, images=images
        )
        return self._add([self.checked(entry)])[0]

    def add_many(self, entries: Sequence[Entry], *, atomic: bool = True) -> list[Outcome[Stored]]:
        """Store entries in their order, as `add` does: all or none, or with `atomic=False` each
        that can be stored.
        """
        return _batch(entries, self.checked, self._add, atomic)

    def update(
        self,
        id: int,
        *,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        metadata_patch: Mapping[str, Any] | None = None,
        tags: Sequence[str] | None = None,
        images: Sequence[Image] | None = None,
    ) -> Updated:
        """Change what is given of a context; its id, thread, source and time of creation stay.
        Raises NotFound.

        `metadata`, tags and images are replaced as a whole; `metadata_patch` is merged in (RFC
        7396: null removes a key).
        """
        change = Change(
            id=id,
            text=text,
            metadata=metadata,
            metadata_patch=metadata_patch,
            tags=tags,
            images=images,
        )
        return self._update([self.checked(change)])[0]

    def update_many(
        self, changes: Sequence[Change], *, atomic: bool = True
    ) -> list[Outcome[Updated]]:
        """Make changes in their order, as `update` does: all or none, or with `atomic=False` each
        that can be made.
        """
        return _batch(changes, self.checked, self._update, atomic)

    def checked(self, item: Item) -> Item:
        """An entry as `add` would store it, a change as `update` would make it; raises what these
        would.
        """
        return checked_entry(item, self._config) if isinstance(item, Entry) else self._known(item)

    def delete(
        self,
        ids: Iterable[int] | None = None,
        *,
        threads: Iterable[str] | None = None,
        source: str | None = None,
        older_than_days: int | None = None,
    ) -> int:
        """Remove the contexts that fulfil all of the given conditions, for good; how many. A source
        alone is refused.
        """
        if ids is None and threads is None and older_than_days is None:
            raise InvalidInput(
                "say which contexts to delete: by ids, threads or older_than_days"
                + ("; a source alone would delete too much" if source is not None else "")
            )
        condition, bindings = _doomed(ids, threads, source, older_than_days)
        with self._file.writing() as sql:
            found = [
                id
                for (id,) in sql.execute(f"SELECT x.id FROM contexts x WHERE {condition}", bindings)
            ]
            self._writer.remove(sql, found)
        return len(found)

    # Reading.

    def get(self, ids: Iterable[int], *, images: bool = True) -> list[Context]:
        """The contexts with these ids, newest first; an id that no context has is passed over."""
        wanted = checked_ids(ids)
        with self._file.reading() as sql:
            return by_ids(sql, self._index, wanted, images=images)

    def browse(
        self,
        *,
        limit: int = 30,
        offset: int = 0,
        images: bool = False,
        explain: bool = False,
        **which: Unpack[Filters],
    ) -> Page[Context]:
        """The contexts that fulfil all conditions, newest first; `explain` adds SQLite's plan and
        the time it took.

        thread        the thread they are in source        "user" or "agent" tags          they have
        at least one of these content_type  "multimodal" with images, "text" without where
        id, thread, source, content_type, created_at, updated_at and metadata, as for documents
        start, end    they were created in this period, both ends included: 2025-11-29,
        2025-11-29T10:00:00+02:00 …
        """
        window = whole_number(limit, "limit"), whole_number(offset, "offset")
        with self._file.reading() as sql:
            chosen = choose(self._keys.names(sql), **which)
            with StatementLog(sql, explain) as watch:
                rows = sql.execute(
                    f"{SELECT} WHERE {chosen.condition or '1'} {NEWEST_FIRST} LIMIT ? OFFSET ?",
                    (*chosen.bindings, *window),
                ).fetchall()
            found = hydrated(sql, self._index, rows, images=images)
            return Page(
                items=tuple(found), explained=watch.explained(len(rows)) if explain else None
            )

    def count(self, **which: Unpack[Filters]) -> int:
        """How many contexts fulfil all conditions, which are those of `browse`."""
        with self._file.reading() as sql:
            chosen = choose(self._keys.names(sql), **which)
            return int(
                sql.execute(
                    f"SELECT count(*) FROM contexts x WHERE {chosen.condition or '1'}",
                    chosen.bindings,
                ).get
            )

    def search(
        self,
        query: str,
        *,
        mode: str = "hybrid",
        words: str = "match",
        limit: int = 5,
        offset: int = 0,
        rrf_k: int = 60,
        rerank: bool = False,
        images: bool = False,
        highlight: bool = False,
        explain: bool = False,
        **which: Unpack[Filters],
    ) -> Results[Context]:
        """The contexts that answer a query best, by words ("text"), by meaning ("vector"), or by
        both ("hybrid").

        words    "match": all of them, or any when that finds nothing; "prefix": all, each by its
            beginning; "phrase": one
                 after the other; "boolean": with AND, OR, NOT, parentheses and "phrases"
        rrf_k    the constant of reciprocal rank fusion: the larger, the less the first ranks stand
            out
        rerank   let the cross-encoder, where it is installed, order what was found; see `reasons`
            for why it did not
        which    conditions, those of `browse`; they apply before the ranking

        A score is 0 to 1; hybrid scores compare with those of the same query only. The results say
        which legs ran, and why one did not.
        """
        began = time.perf_counter()
        wanted = checked_window(limit, offset)
        text = storable(query, "query")
        ranked = searching.reread(wanted) if rerank else wanted
        question = searching.question(
            text, mode, words, self._config.language, ranked, rrf_k, explain
        )
        choose((), **which)  # says what is wrong with them before a model is asked
        query_embedding = (
            self._encoder.query_embedding(text, wait=mode == "vector") if mode != "text" else ""
        )
        with self._file.reading() as sql:
            chosen = choose(self._keys.names(sql), **which)
            found = searching.find(sql, self._index, self._words, question, query_embedding, chosen)
            passages = self._excerpts(sql, found, question) if rerank else []
        if rerank:  # no transaction is open meanwhile, because it can take seconds
            searching.reorder(found, self._reranking.scores(text, passages))
        with self._file.reading() as sql:
            hits = self._hits(
                sql, found, offset, wanted, images, question.stemmed if highlight else None
            )
        spent = 1000 * (time.perf_counter() - began)
        return Results(
            hits=hits,
            legs=tuple(found.legs),
            reasons=found.reasons,
            counts=found.counts,
            note=question.asked.note,
            explained=together(found.explained, spent, len(hits)) if explain else None,
        )

    def threads(self) -> list[Thread]:
        """All threads, the one with the newest context first."""
        with self._file.reading() as sql:
            return [
                Thread(
                    name=name,
                    contexts=contexts,
                    sources=sources,
                    multimodal=multimodal,
                    first_at=first,
                    last_at=last,
                    last_id=last_id,
                )
                for name, contexts, sources, multimodal, first, last, last_id in sql.execute(
                    "SELECT thread, count(*), count(DISTINCT source), sum(id IN (SELECT context "
                    "FROM context_images)), min(created_at), max(created_at), max(id) FROM "
                    "contexts GROUP BY thread ORDER BY max(created_at) DESC, max(id) DESC"
                )
            ]

    def statistics(self) -> ContextStats:
        """How much is on the shelf, what is used most, and what this machine lacks for searching
        it.
        """
        lacking = {
            "vector": self._encoder.missing_reason(),
            "rerank": self._reranking.missing_reason(),
        }
        with self._file.reading() as sql:
            by_source = dict(
                sql.execute("SELECT source, count(*) FROM contexts GROUP BY source ORDER BY source")
            )
            images, multimodal = sql.execute(
                "SELECT count(*), count(DISTINCT context) FROM context_images"
            ).get
            total = sum(by_source.values())
            kinds = {"text": total - multimodal, "multimodal": multimodal}
            return ContextStats(
                contexts=total,
                by_source=by_source,
                by_content_type={kind: count for kind, count in kinds.items() if count},
                images=images,
                tags=sql.execute("SELECT count(DISTINCT tag) FROM context_tags").get,
                threads=sql.execute("SELECT count(DISTINCT thread) FROM contexts").get,
                chunks=sql.execute("SELECT count(*) FROM context_chunks").get,
                embedded=total - _waiting(sql),
                lacking={leg: reason for leg, reason in lacking.items() if reason},
                most_active_threads=_most(sql, "contexts", "thread", 5),
                top_tags=_most(sql, "context_tags", "tag", 10),
            )

    def model(self) -> str:
        """The name of the model that searches by meaning use, or that the first context will
        choose.
        """
        with self._file.reading() as sql:
            return self._encoder.expected_model(sql)[0]

    def problems(self, where: Where | None) -> list[str]:
        """What is wrong with a `where`, one message for each bad condition; an empty list when it
        can be used.
        """
        return filters.problems(where, FIELDS)

    # Indexed metadata keys.

    def indexed_keys(self) -> tuple[str, ...]:
        """The metadata keys that are indexed: filters on them by `eq` and `in` do not look into
        every context.
        """
        with self._file.reading() as sql:
            return self._keys.names(sql)

    def index_keys(self, keys: Iterable[str]) -> None:
        """Index these metadata keys and no others; a dot in one descends into an object."""
        with self._file.writing() as sql:
            self._keys.use(sql, list(keys))

    def _add(self, entries: Sequence[Entry]) -> list[Stored]:
        prepared = self._writer.prepare(entry.text for entry in entries)
        with self._file.writing() as sql:
            self._keys.settle(sql)
            done = [self._writer.add(sql, entry, prepared) for entry in entries]
            stored = self._by_id(sql, [id for id, _ in done])
        return [
            Stored(status=status, context=stored[id], note=prepared.note) for id, status in done
        ]

    def _update(self, changes: Sequence[Change]) -> list[Updated]:
        prepared = self._writer.prepare(
            change.text for change in changes if change.text is not None
        )
        with self._file.writing() as sql:
            fields = [self._writer.change(sql, change, prepared) for change in changes]
            stored = self._by_id(sql, [change.id for change in changes])
        return [
            Updated(
                context=stored[change.id],
                fields=written,
                note=prepared.note if change.text is not None else "",
            )
            for change, written in zip(changes, fields, strict=True)
        ]

    def _known(self, change: Change) -> Change:
        """A change checked, of a context that exists: no use in embedding a text for one that does
        not.
        """
        checked = checked_change(change, self._config)
        with self._file.reading() as sql:
            if not sql.execute("SELECT 1 FROM contexts WHERE id = ?", (checked.id,)).fetchone():
                raise NotFound(f"no context has the id {checked.id}")
        return checked

    def _by_id(
        self, sql: apsw.Connection, ids: Sequence[int], *, images: bool = False
    ) -> dict[int, Context]:
        return {context.id: context for context in by_ids(sql, self._index, ids, images=images)}

    def _excerpts(self, sql: apsw.Connection, found: Found, question: Question) -> list[str]:
        """What the cross-encoder reads of the best contexts: the nearest chunk, or where the
        query's words stand.
        """
        ids = [id for id, _, _ in found.rows[:REREAD]]
        texts = dict(self._index.texts(sql, ids))
        chunks = {
            chunk: text
            for chunk, _, _, text in self._index.passages(
                sql, [found.chunks[id] for id in ids if id in found.chunks]
            )
        }
        return [
            chunks.get(found.chunks.get(id, 0)) or excerpt(texts[id], found.terms, question.stemmed)
            for id in ids
        ]

    def _hits(
        self,
        sql: apsw.Connection,
        found: Found,
        offset: int,
        wanted: int,
        images: bool,
        stemmed: bool | None,
    ) -> tuple[Hit[Context], ...]:
        contexts = self._by_id(sql, [id for id, _, _ in found.rows[offset:wanted]], images=images)
        page = [
            row for row in found.rows[offset:wanted] if row[0] in contexts
        ]  # one may be gone since it was found
        chunks = [found.chunks[id] for id in contexts if id in found.chunks]
        passages = {chunk: text for chunk, _, _, text in self._index.passages(sql, chunks)}
        return tuple(
            Hit(
                item=contexts[id],
                score=score,
                scores=scores,
                passage=passages.get(found.chunks.get(id, 0), ""),
                highlighted=None
                if stemmed is None
                else highlight(contexts[id].text, found.terms, stemmed=stemmed),
            )
            for id, score, scores in page
        )


def _batch(
    items: Sequence[Item],
    check: Callable[[Item], Item],
    apply: Callable[[Sequence[Item]], list[Result]],
    atomic: bool,
) -> list[Outcome[Result]]:
    checked = [_outcome(index, check, item) for index, item in enumerate(items)]
    usable = [(outcome.index, outcome.result) for outcome in checked if outcome.result is not None]
    wrong = {outcome.index: outcome.error for outcome in checked if outcome.error is not None}
    if not atomic:
        done = {
            index: _outcome(index, lambda item: apply([item])[0], item) for index, item in usable
        }
        return [
            done.get(index) or Outcome(index=index, error=wrong[index])
            for index in range(len(items))
        ]
    if wrong:
        index, error = next(iter(wrong.items()))
        raise type(error)(
            f"{len(wrong)} of {len(items)} items cannot be stored, so none was; "
            f"the first is at index {index}: {error}"
        )
    return [
        Outcome(index=index, result=result)
        for index, result in enumerate(apply([item for _, item in usable]))
    ]


def _outcome(index: int, function: Callable[[Item], Result], item: Item) -> Outcome[Result]:
    try:
        return Outcome(index=index, result=function(item))
    except MCPVectorDBError as error:
        return Outcome(index=index, error=error)


def _doomed(
    ids: Iterable[int] | None,
    threads: Iterable[str] | None,
    source: str | None,
    older_than_days: int | None,
) -> tuple[str, list[Any]]:
    """The condition for what `delete` removes."""
    pieces: list[tuple[str, list[Any]]] = []
    if ids is not None:
        pieces.append(("x.id IN (SELECT value FROM json_each(?))", [json.dumps(checked_ids(ids))]))
    if threads is not None:
        names = checked_threads(threads)
        pieces.append((f"x.thread IN ({', '.join('?' * len(names))})", names))
    if source is not None:
        pieces.append(("x.source = ?", [one_of(source, SOURCES, "source")]))
    if older_than_days is not None:
        pieces.append(("x.created_at < ?", [_days_ago(older_than_days)]))
    return " AND ".join(piece for piece, _ in pieces), [
        value for _, values in pieces for value in values
    ]


def _days_ago(days: object) -> str:
    try:
        return dates.stored(
            datetime.now(UTC) - timedelta(days=whole_number(days, "older_than_days", 1))
        )
    except OverflowError:
        return ""  # before all years: nothing is that old


def _waiting(sql: apsw.Connection) -> int:
    """How many contexts have chunks that wait for the active model."""
    return int(
        sql.execute(
            "SELECT count(DISTINCT c.owner) FROM context_pending p JOIN context_chunks c ON c.id "
            "= p.chunk WHERE p.model = (SELECT value FROM settings WHERE name = 'model')"
        ).get
    )


def _most(sql: apsw.Connection, table: str, column: str, limit: int) -> tuple[tuple[str, int], ...]:
    return tuple(
        (name, count)
        for name, count in sql.execute(
            f"SELECT {column}, count(*) FROM {table} GROUP BY {column} ORDER BY count(*) DESC, "
            f"{column} LIMIT ?",
            (limit,),
        )
    )
