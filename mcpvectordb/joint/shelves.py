"""Documents and memories asked together: methods of `Database`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpvectordb.errors import InvalidInput, NotFound
from mcpvectordb.index import models
from mcpvectordb.search.ranker import checked_window

if TYPE_CHECKING:
    import apsw

    from mcpvectordb.documents.shelf import Documents
    from mcpvectordb.filters import Where
    from mcpvectordb.index.chunks import ChunkIndex
    from mcpvectordb.index.encoder import Encoder
    from mcpvectordb.joint.quotations import StatedPlace
    from mcpvectordb.joint.records import Duplicates, LineMatches, Projection, Quotation
    from mcpvectordb.joint.search import Kind, Query
    from mcpvectordb.joint.texts import StoredTexts
    from mcpvectordb.memories.memory import Memory
    from mcpvectordb.memories.shelf import Memories
    from mcpvectordb.records import Chunk, Place, Results
    from mcpvectordb.storage.file import File


class JointShelves(ABC):
    """The methods of a database that search its documents and memories together.

    Their modules are loaded on first use: many processes need neither.
    """

    documents: Documents
    _file: File
    _encoder: Encoder
    _indexes: tuple[ChunkIndex, ChunkIndex]

    @property
    @abstractmethod
    def memories(self) -> Memories:
        """The memories shelf."""

    def search(
        self,
        query: Query,
        *,
        kind: Kind | None = None,
        library: str | None = None,
        thread: str | None = None,
        tags: Sequence[str] | None = None,
        where: Where | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 10,
        offset: int = 0,
        min_relevance: float = 0.0,
        group: bool = False,
        newer: str | None = None,
    ) -> Results[Chunk | Memory]:
        """The passages of documents and the memories that answer a query best, in one ranking.

        `query` is a text, or a list of searches by `words`, by `meaning` or by both (`text`), whose
        rankings are fused by reciprocal ranks, the first counting double: [{"words": "E-4021"},
        {"meaning": "the pump does not start"}].

        `kind` ("documents" or "memories") asks for one kind. A `library` has documents only, a
        `thread` and `tags` memories only, and so does a `where` that names a field of one kind.
        `since` and `until` are dates (2025-11-29, 2025-11), ages (7d), today or yesterday: for a
        memory the time at which it was stored, for a document that of its file or else of its
        ingest (the field `date`).

        Both kinds are ranked together by `relevance`, each in its own order. Where that is not
        known of every hit (`Results.uncalibrated`), they alternate. `group` brings the best passage
        of each document before others, and `newer`, a half-life such as 30d, prefers what is newer;
        see `documents.search`.
        """
        from mcpvectordb.joint.search import JointFilter, JointQuery, JointSearch

        question = JointQuery.checked(query, limit, offset, min_relevance, group, newer)
        which = JointFilter.checked(
            kind,
            library=library,
            thread=thread,
            tags=tags,
            where=where,
            since=since,
            until=until,
        )
        return JointSearch(self._file, self.documents, lambda: self.memories).search(
            question, which
        )

    def grep(
        self,
        pattern: str,
        *,
        literal: bool = False,
        case_sensitive: bool = True,
        kind: Kind | None = None,
        library: str | None = None,
        thread: str | None = None,
        limit: int = 50,
    ) -> LineMatches:
        """The lines of documents and memories that match a regular expression, or have a literal.

        The expression is one of RE2, which takes time linear in the text: no look-around and no
        back-references, and no pattern of more than 30,000 of its instructions. What cannot be
        read within `Config.read_timeout` is left out, and `note` says so; it also says where a long
        line was searched in pieces, so that a match longer than half a piece may be missing.
        """
        from mcpvectordb.joint.grep import compiled, grep
        from mcpvectordb.joint.search import JointFilter

        checked_window(limit, 0)
        expression = compiled(pattern, literal=literal, case_sensitive=case_sensitive)
        which = JointFilter.checked(kind, library=library, thread=thread)
        return grep(self._file, self._texts(), expression, which, limit)

    def verify(
        self,
        quotation: str,
        *,
        document: str | None = None,
        memory: int | None = None,
        line: int | None = None,
        page: int | None = None,
    ) -> Quotation:
        """Whether a quotation stands in a stored text, and where: in all that is stored.

        `document` (a name as for `documents.lookup`, also with a line) or `memory` says where it
        should stand, `line` or `page` at which place of it. Spacing, hyphens and the forms of
        quotation marks may differ, words may not; see `Quotation.status`.
        """
        from mcpvectordb.joint.quotations import QuotationSearch, checked

        text = checked(quotation)
        with self._file.reading() as sql:
            stated = self._stated(sql, document, memory, line, page)
            return QuotationSearch(sql, self._texts(), text).verify(stated)

    def similar(
        self,
        *,
        document: str | None = None,
        memory: int | None = None,
        chunk: int | None = None,
        kind: Kind | None = None,
        limit: int = 10,
    ) -> Results[Chunk | Memory]:
        """The documents and memories most similar to a stored one, by their embeddings.

        `document` is a name as for `documents.lookup`. The score is the cosine between the best
        passage of each and the mean of the passages of the one that is given. With a `chunk`
        (`Chunk.id`) in place of both, passages are compared with this one alone, and several of
        one document may be returned.
        """
        from mcpvectordb.joint.search import JointFilter
        from mcpvectordb.joint.similar import SimilarTexts

        checked_window(limit, 0)
        wanted = JointFilter.checked(kind).kinds
        with self._file.reading() as sql:
            model = models.active(sql)
            if chunk is not None and document is None and memory is None:
                if model is None or not self.documents.chunks_by_ids([chunk]):
                    raise NotFound(f"no passage has the id {chunk}")
                similar = SimilarTexts(sql, model, *self._indexes)
                return similar.to_chunk(chunk, wanted, limit)
            place = self._named(document, memory)
            given = self._texts().one(sql, place, memory)
            if model is None:
                raise AssertionError  # a stored text has chunks, and these a model
            return SimilarTexts(sql, model, *self._indexes).similar(
                "documents" if given.is_document else "memories", given.key, wanted, limit
            )

    def highlights(self, text: str, query: str) -> list[tuple[int, int]]:
        """(start, end) of the words and phrases of a query in a text, in characters.

        Words are compared as the search by words compares them, by their stems.
        """
        from mcpvectordb.search.highlight import occurrences
        from mcpvectordb.text.query import highlight_terms

        with self._file.reading():  # the time of a read runs only inside of one
            return occurrences(text, highlight_terms(query), stemmed=True)

    def projection(self) -> Projection:
        """All embedded passages in the plane, by principal component analysis, for a map of them.

        It reads every embedding of the file: about a second for 100,000 passages.
        """
        from mcpvectordb.joint.projection import project

        with self._file.reading(limited=False) as sql:
            return project(sql, models.active(sql), *self._indexes)

    def duplicates(self, *, min_cosine: float = 0.95) -> list[Duplicates]:
        """Groups of passages that say nearly the same, the largest first, by their embeddings.

        Each passage of a group has such a cosine with at least one other of it. The comparison is
        approximate, so that it takes seconds in a large file: of pairs just above the threshold a
        few are missed, of equal ones none. All embeddings are in memory meanwhile.
        """
        from mcpvectordb.joint.duplicates import find

        if not 0.5 <= min_cosine <= 1:
            raise InvalidInput(f"min_cosine must be 0.5 to 1, not {min_cosine}")
        with self._file.reading(limited=False) as sql:
            return find(sql, models.active(sql), min_cosine, *self._indexes)

    def _texts(self) -> StoredTexts:
        from mcpvectordb.joint.texts import StoredTexts

        return StoredTexts(*self._indexes)

    def _named(self, document: str | None, memory: int | None) -> Place | None:
        """The place of a document by its name; None for a memory. One of both must be given."""
        if (document is None) == (memory is None):
            raise InvalidInput("say which one: either a document or a context")
        return None if document is None else self.documents.lookup(document)

    def _stated(
        self,
        sql: apsw.Connection,
        document: str | None,
        memory: int | None,
        line: int | None,
        page: int | None,
    ) -> StatedPlace | None:
        """Where a quotation is said to stand, as offsets of a text; None if nothing is said."""
        from mcpvectordb.joint.quotations import StatedPlace, line_offsets

        if document is None and memory is None:
            if line is not None or page is not None:
                raise InvalidInput("a line or a page needs the document that it is of")
            return None
        place = self._named(document, memory)
        text = self._texts().one(sql, place, memory)
        first, count = line, 1
        if place is not None and place.line is not None and line is None:
            first, count = place.line, place.lines or 1
        if place is not None and page is not None:
            begin, end = self.documents.page_lines(place.document.id, page)
            first, count = begin, end - begin + 1
        if first is None:
            return StatedPlace(text, 0, len(text.text))
        return StatedPlace(text, *line_offsets(text.text, first, count))
