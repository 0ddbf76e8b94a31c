"""Keeps the embeddings of a source where they are those that the file's model would make.

The name of a model can lie, and one model has several names. So what decides is a comparison: a few
texts of each batch are embedded here, and the cosine to the embeddings of the source must be near
to 1 for all of them. The same model in another precision has a cosine of .9996 (MiniLM in int8 and
float32), another model of the same dimension a low one (MiniLM and bge-small: .1 to .3).

Here a passage is embedded with its title and headings in front of it, elsewhere mostly without, and
a passage of our own table (CSV, Parquet) with the headings that its row names: any of these counts
as equal. The header of a table that goes on is in no row, so one of the few texts may differ more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.errors import ModelError
from mcpvectordb.index import arrays
from mcpvectordb.index.chunks import (
    ChunkIndex,
    IndexedChunk,
    ModelRow,
    active_model,
    embedding_text,
)
from mcpvectordb.storage.lazy import np
from mcpvectordb.store import OpenStore
from mcpvectordb.transfer.items import TextItem

SAMPLE = 4  # texts of each batch that are embedded for comparison
LEAST_COSINE = 0.95
# Of one among several: a part of a table was embedded below a header that its row does not have.
LEAST_OF_ONE = 0.6
KEPT, NONE = "kept", "the source has none"


Offered = tuple[int, IndexedChunk, bytes, list[str]]
"""The owner of a passage that waits for its embedding, the passage, what the source has for it, and
the texts of which that may be the embedding."""


def keep(store: OpenStore, index: ChunkIndex, owners: Mapping[int, TextItem]) -> Counter[str]:
    """Store what can be kept for these owners; what became of how many, for the report.

    Passages that have an embedding already are left alone.
    """
    with store.file.reading(limited=False) as sql:
        model = active_model(sql)
        if model is None or not owners:
            return Counter()
        waiting = index.waiting(sql, model.key, list(owners))
    outcomes: dict[int, str] = {}
    offered: defaultdict[str, list[Offered]] = defaultdict(list)
    for owner, passage in waiting:
        found = _offer(owners[owner], passage, model)
        if isinstance(found, str):
            outcomes[owner] = found
        else:
            texts = [passage.embedding_text, passage.text]
            headings = owners[owner].metadata.get("headings")
            if isinstance(headings, list) and all(isinstance(each, str) for each in headings):
                texts.append(embedding_text(passage.title, headings, passage.header, passage.text))
            offered[owners[owner].model].append((owner, passage, found, texts))
    for name, some in offered.items():
        reason = _difference(store, index, model, name, some)
        outcomes |= {owner: reason or KEPT for owner, *_ in some if owner not in outcomes}
        if not reason:
            with store.file.writing() as sql:
                index.settle(sql, model.key, ((passage.id, raw) for _, passage, raw, _ in some))
    return Counter(outcomes.values())


def plan(store: OpenStore, items: Iterable[TextItem]) -> Counter[str]:
    """What would become of the embeddings of items, as far as their dimension says it."""
    with store.file.reading(limited=False) as sql:
        name, dimension = store.encoder.expected_model(sql)
    found: Counter[str] = Counter()
    for item in items:
        sizes = {len(values) // 4 for values in item.embeddings.values()}
        if not sizes:
            found[NONE] += 1
        elif sizes == {dimension}:
            found[f"to be compared with those of {name}"] += 1
        else:
            found[_other_dimension(item, min(sizes), name, dimension)] += 1
    return found


def _difference(
    store: OpenStore, index: ChunkIndex, model: ModelRow, name: str, offered: Sequence[Offered]
) -> str:
    """Why embeddings are not those of the file's model, judged by a few of them; "" if so."""
    sample = offered[:: max(1, len(offered) // SAMPLE)][:SAMPLE]
    texts = [text for *_, embedded in sample for text in embedded]
    try:
        _, own = store.encoder.embed_texts(index, texts)
    except ModelError as error:
        return f"cannot be compared with those of the file's model: {error}"
    cosines = []
    for *_, raw, embedded in sample:
        rows = arrays.unpacked([raw, *(own[text] for text in embedded)], model.dimension)
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines.append(float((units[1:] @ units[0]).max()))
    cosines.sort()
    if cosines[0] >= LEAST_COSINE or (
        cosines[0] >= LEAST_OF_ONE and cosines[1:2] >= [LEAST_COSINE]
    ):
        return ""
    said = f" of {name}" if name else " of the source"
    return f"those{said} differ from those of {model.name}{_hint(name, model.name)}"


def _offer(item: TextItem, passage: IndexedChunk, model: ModelRow) -> bytes | str:
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


def _other_dimension(item: TextItem, size: int, name: str, dimension: int) -> str:
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
