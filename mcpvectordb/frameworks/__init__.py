"""What `langchain` and `llamaindex` share: passages as they hand them on, and many ids at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mcpvectordb import Condition, Database

BATCH = 500  # ids that are looked up at once


def passages(
    db: Database, query: str, **asked: Any
) -> Iterator[tuple[str, str, dict[str, Any], float]]:
    """(id, text, metadata, score) of the passages that answer a question; see `Documents.search`.

    A passage has the metadata of its document, and where it stands.
    """
    for hit in db.documents.search(query, plain=True, **asked):
        chunk, document = hit.item, hit.item.document
        places = ("page", "first_line", "last_line", "citation")
        metadata = {
            **document.metadata,
            "title": document.title,
            "source": document.source,
            **{name: getattr(chunk, name) for name in places},
            "relevance": hit.relevance,
        }
        yield f"{document.id}#{chunk.position}", chunk.passage, metadata, hit.score


def among(field: str, ids: Sequence[str]) -> Iterator[Condition]:
    """The conditions to have one of these ids, each for as many as are looked up at once."""
    for start in range(0, len(ids), BATCH):
        yield Condition(field, "in", list(ids[start : start + BATCH]))
