"""Judged collections in BEIR layout: corpus.jsonl, queries.jsonl and qrels/*.tsv in one folder."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mcpvectordb import InvalidInput


@dataclass(frozen=True, slots=True)
class Entry:
    """One document of the corpus; the title may be ""."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection; `judged` has the relevance of documents by the id of each query.

    Queries without a relevant document are left out.
    """

    name: str
    digest: str
    corpus: list[Entry]
    queries: dict[str, str]
    judged: dict[str, dict[str, int]]


def load(folder: Path) -> Collection:
    """Read a folder; what is missing in it is an error."""
    files = [folder / "corpus.jsonl", folder / "queries.jsonl", *sorted(folder.glob("qrels/*.tsv"))]
    missing = next((path for path in files[:2] if not path.is_file()), None)
    if missing is not None or len(files) == 2:
        raise InvalidInput(
            f"{folder} is not in BEIR layout: there is no {missing or folder / 'qrels/*.tsv'}"
        )
    judged = _judgments(files[2:])
    queries = {each["_id"]: each["text"] for each in _lines(files[1]) if each["_id"] in judged}
    if not queries:
        raise InvalidInput(f"{folder} has no query with a relevant document")
    corpus = [Entry(each["_id"], each.get("title", ""), each["text"]) for each in _lines(files[0])]
    return Collection(folder.resolve().name, digest(files), corpus, queries, judged)


def digest(files: list[Path]) -> str:
    """The SHA-256 of some files' contents."""
    return hashlib.sha256(
        b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)
    ).hexdigest()


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _judgments(files: list[Path]) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    for path in files:
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
                judged.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    return {query: documents for query, documents in judged.items() if max(documents.values()) > 0}
