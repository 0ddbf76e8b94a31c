"""Keeps the embeddings of a source where they are those that the file's model would make.

The name of a model can lie, and one model has several names. So what decides is a comparison: a few
texts of each batch are embedded here, and the cosine to the embeddings of the source must be near
to 1 for all of them. The same model in another precision has a cosine of .9996 (MiniLM in int8 and
float32), another model of the same dimension a low one (MiniLM and bge-small: .1 to .3).

Here a passage is embedded with its title and headings in front of it, elsewhere mostly without, so
either counts as equal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.errors import ModelError
from mcpvectordb.importers.items import ImportedDocument, ImportedMemory
from mcpvectordb.index import arrays, models
from mcpvectordb.index.chunks import ChunkIndex
from mcpvectordb.index.encoder import Encoder
from mcpvectordb.index.indexed_chunk import IndexedChunk
from mcpvectordb.index.models import ModelRow
from mcpvectordb.storage.file import File

SAMPLE = 4  # texts of each batch that are embedded for comparison
LEAST_COSINE = 0.95
KEPT, NONE = "kept", "the source has none"


class OfferedEmbedding(NamedTuple):
    """A passage that waits for its embedding, and what the source has for it."""

    owner: int
    passage: IndexedChunk
    values: bytes


class KeptEmbeddings:
    """Stores the embeddings that come with imported texts, as far as they can be kept."""

    def __init__(self, file: File, encoder: Encoder) -> None:
        self._file, self._encoder = file, encoder

    def keep(
        self, index: ChunkIndex, owners: Mapping[int, ImportedDocument | ImportedMemory]
    ) -> Counter[str]:
        """Store what can be kept for these owners; what became of how many, for the report.

        Passages that have an embedding already are left alone.
        """
        with self._file.reading(limited=False) as sql:
            model = models.active(sql)
            if model is None or not owners:
                return Counter()
            waiting = index.waiting(sql, model.key, list(owners))
        outcomes: dict[int, str] = {}
        offered: defaultdict[str, list[OfferedEmbedding]] = defaultdict(list)
        for owner, passage in waiting:
            found = _offer(owners[owner], passage, model)
            if isinstance(found, str):
                outcomes[owner] = found
            else:
                offered[owners[owner].model].append(OfferedEmbedding(owner, passage, found))
        for name, some in offered.items():
            reason = self._difference(index, model, name, some)
            outcomes |= {each.owner: reason or KEPT for each in some if each.owner not in outcomes}
            if not reason:
                with self._file.writing() as sql:
                    index.settle(sql, model.key, ((each.passage.id, each.values) for each in some))
        return Counter(outcomes.values())

    def plan(self, items: Iterable[ImportedDocument | ImportedMemory]) -> Counter[str]:
        """What would become of the embeddings of items, as far as their dimension says it."""
        with self._file.reading(limited=False) as sql:
            name, dimension = self._encoder.expected_model(sql)
        plan: Counter[str] = Counter()
        for item in items:
            sizes = {len(values) // 4 for values in item.embeddings.values()}
            if not sizes:
                plan[NONE] += 1
            elif sizes == {dimension}:
                plan[f"to be compared with those of {name}"] += 1
            else:
                plan[_other_dimension(item, min(sizes), name, dimension)] += 1
        return plan

    def _difference(
        self, index: ChunkIndex, model: ModelRow, name: str, offered: Sequence[OfferedEmbedding]
    ) -> str:
        """Why embeddings are not those of the file's model, judged by a few of them; "" if so."""
        sample = offered[:: max(1, len(offered) // SAMPLE)][:SAMPLE]
        texts = [text for each in sample for text in _embedded_texts(each.passage)]
        try:
            _, own = self._encoder.embed_texts(index, texts)
        except ModelError as error:
            return f"cannot be compared with those of the file's model: {error}"
        least = min(
            max(
                _cosine(each.values, own[text], model.dimension)
                for text in _embedded_texts(each.passage)
            )
            for each in sample
        )
        if least >= LEAST_COSINE:
            return ""
        said = f" of {name}" if name else " of the source"
        return f"those{said} differ from those of {model.name}{_hint(name, model.name)}"


def _offer(
    item: ImportedDocument | ImportedMemory, passage: IndexedChunk, model: ModelRow
) -> bytes | str:
    """The embedding that an item has for a passage, or why there is none that could be kept."""
    if not item.embeddings:
        return NONE
    wanted = passage.text.strip()
    for text, values in item.embeddings.items():
        if len(values) != 4 * model.dimension:
            return _other_dimension(item, len(values) // 4, model.name, model.dimension)
        if text.strip() == wanted:
            usable = arrays.is_rankable(values, model.dimension)
            return values if usable else "values that cannot be ranked"
    return "the text is divided into other passages here"


def _other_dimension(
    item: ImportedDocument | ImportedMemory, size: int, name: str, dimension: int
) -> str:
    said = f" of {item.model}" if item.model else ""
    return (
        f"those{said} have {size:,} values, those of {name} {dimension:,}{_hint(item.model, name)}"
    )


def _hint(theirs: str, ours: str) -> str:
    """How embeddings could be kept, if their model is one that a file can have."""
    name = theirs.rpartition("/")[2].partition(":")[0]
    if name == ours or name not in CATALOGUE:
        return ""
    return f" (a new file keeps them if it is made with MCPVECTORDB_MODEL={name})"


def _embedded_texts(passage: IndexedChunk) -> Iterator[str]:
    yield passage.embedding_text
    if passage.text != passage.embedding_text:
        yield passage.text


def _cosine(first: bytes, second: bytes, dimension: int) -> float:
    import numpy as np

    one, other = (arrays.unpacked([each], dimension)[0] for each in (first, second))
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
