from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from mcpvectordb import Database
from tests.support import Letters


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


def test_everything_stands_in_lines_of_its_own(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.jsonl")
    header, *others = records(tmp_path / "out.jsonl")
    assert header["mcpvectordb"] == 1
    assert header["model"] == {"name": "letters", "digest": "", "dimension": 32}
    kinds = [each["kind"] for each in others]
    assert kinds == (
        ["library"] + ["document"] * 3 + ["context"] * 2 + ["store"] * 2 + ["vector"] * 2 + ["end"]
    )


def test_texts_and_embeddings_are_exact(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.jsonl")
    found = {each.get("source"): each for each in records(tmp_path / "out.jsonl")}
    tea = found[str(tmp_path / "notes" / "tea.md")]
    assert tea["text"] == "---\nyear: 2024\n---\n# Tea\n\nWater at 80 degrees.\n"
    assert tea["metadata"] == {"year": 2024} and tea["title"] == "Tea"
    [chunk] = tea["chunks"]
    embedding = np.frombuffer(base64.b64decode(chunk["embedding"]), "<f4")
    [hit] = db.documents.search("water", mode="vector", library="notes")
    assert hit.item.text == tea["text"][chunk["start"] : chunk["end"]]
    assert embedding.shape == (32,) and np.array_equal(
        embedding, Letters().embed([f"Tea\n{hit.item.text}"])[0]
    )


def test_a_packed_file_has_the_same_lines(db: Database, tmp_path: Path) -> None:
    db.export_to(tmp_path / "out.jsonl")
    db.export_to(tmp_path / "out.jsonl.gz")
    with gzip.open(tmp_path / "out.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    assert lines[1:] == (tmp_path / "out.jsonl").read_text("utf-8").split("\n")[1:]
