"""What is found in documents and memories together: frozen and keyword-only, as in `records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from mcpvectordb.memories.memory import Memory
from mcpvectordb.records import Chunk, Document, Record, Results

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Context(Record):
    """What a search found as text under a budget; see `Database.context`.

    text       the passages, each below a line `[1] notes/tea.md:12-20 · p. 3 · 87 %`
    found      the results of the search; the first `shown` hits are in the text
    shortened  how many of these are cut, marked by […]
    needed     the budget in tokens that all of them need
    """

    text: str
    found: Results[Chunk | Memory]
    shown: int
    shortened: int
    needed: int


class LineMatch(Record):
    """A line that matches a pattern: its number and text, and the document or memory it is of."""

    item: Document | Memory
    line: int
    text: str


class LineMatches(Record, Sequence[LineMatch]):
    """The first lines that match a pattern.

    total     how many lines match in all
    searched  how many texts were read
    note      a sentence if not all texts could be read in time, otherwise ""
    """

    items: tuple[LineMatch, ...]
    total: int
    searched: int
    note: str = ""

    @overload
    def __getitem__(self, index: int) -> LineMatch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LineMatch]: ...
    def __getitem__(self, index: int | slice) -> LineMatch | Sequence[LineMatch]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


class Quotation(Record):
    """Where a quotation stands, and the proof of it.

    status        exact: character by character, where it is said to stand or, if nothing is said,
                  anywhere; spacing: there, with other spacing, hyphens or quotation marks; case:
                  there, with capital and small letters exchanged, perhaps with other spacing too;
                  elsewhere: not there, but in this text or at these lines; absent: nowhere
    exact         whether it stands character by character at the place that is given
    case          whether it stands there with the case of its letters
    item          the document or memory that has it; the one that was named if it is absent
    start, end    its offsets in that text, in characters
    text          what stands there
    text_sha256   the SHA-256 of that whole text in UTF-8, as it was read for this; `Document.hash`
                  is that of the file or page it came from
    searched      how many texts were read
    note          a sentence if not all texts could be read in time, otherwise ""
    """

    status: Literal["exact", "spacing", "case", "elsewhere", "absent"]
    exact: bool = False
    case: bool = False
    item: Document | Memory | None = None
    start: int = 0
    end: int = 0
    first_line: int = 0
    last_line: int = 0
    page: int | None = None
    text: str = ""
    text_sha256: str = ""
    searched: int = 0
    note: str = ""


class Projection(Record):
    """All embedded passages in the plane: arrays with one value for each of them.

    ids          `Chunk.id` of a passage of a document, `Memory.id` of a passage of a memory
    x, y         its place; what says something similar is near
    memories     how many of the last ones are those of memories
    names        of the groups by "library", "folder", "type" and "time", at most twelve each
    groups       by the same: the number of its group in `names`
    pending      how many passages have no embedding yet and so no place
    """

    ids: NDArray[np.int64]
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    memories: int
    names: Mapping[str, tuple[str, ...]]
    groups: Mapping[str, NDArray[np.uint8]]
    pending: int

    def __len__(self) -> int:
        return len(self.ids)

    def to_dict(self) -> dict[str, Any]:
        """The fields in JSON's types."""
        arrays = {name: getattr(self, name).tolist() for name in ("ids", "x", "y")}
        groups = {by: numbers.tolist() for by, numbers in self.groups.items()}
        return {**super().to_dict(), **arrays, "groups": groups}


class Duplicates(Record):
    """Passages that say nearly the same: ids of passages of documents, and of memories.

    `cosine` is the lowest of those by which they were found to belong together.
    """

    chunks: tuple[int, ...]
    memories: tuple[int, ...]
    cosine: float

    def __len__(self) -> int:
        return len(self.chunks) + len(self.memories)
