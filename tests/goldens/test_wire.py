"""What each tool of each surface answers, exactly as it is sent."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mcpvectordb import Database
from tests.goldens.recorded import Recorded
from tests.server.clients import VERSIONS, exchange, service

NOBODY = "00000000-0000-4000-8000-000000000000"
Calls = list[tuple[str, dict[str, Any]]]

# `{letter}` is the path of a file, `{id}` the id of the document that it became, `{tea}` that of a
# note; calls of one surface are made in order, on one file.
CALLS: dict[str, Calls] = {
    "mcpvectordb": [
        ("search", {"query": "how often do we change the certificate?"}),
        ("search", {"query": "tea", "library": "code", "top_k": 1}),
        ("search", {"query": "budget", "filter": {"year": 2026}}),
        ("search", {"query": "budget", "filter": {"yeer": 2026}}),
        ("search", {"query": ""}),
        ("search", {"query": "tea", "top_k": 0}),
        ("search", {"query": "tea", "library": "nowhere"}),
        ("search", {"query": "tea", "unknown": 1}),
        ("search", {"query": "tea", "filter": {"file_type": "md", "chunk_index": 0.0}}),
        ("search", {"query": "tea", "filter": {"metadata": {"year": 2026}}}),
        ("search", {"query": "tea", "filter": {"metadata": {"yaer": 1}}}),
        ("search", {"query": "tea", "filter": {"last_modified": ""}, "top_k": 1}),
        ("search", {"query": "tea", "filter": {"last_modified": "May"}}),
        ("search", {"query": "tea", "filter": {"page": "three"}}),
        ("search", {"query": "tea", "filter": {"title": "green"}}),
        ("search", {"query": "tea", "filter": {"title": ["a"]}}),
        ("search", {"query": "tea", "filter": {"library": "x"}}),
        ("search", {"query": "tea", "filter": {"a b": 1}}),
        ("search", {"query": "tea", "filter": {"metadata": "not json"}}),
        ("search", {"query": "tea", "filter": ["file_type"]}),
        ("search", {}),
        ("list_documents", {}),
        ("list_documents", {"library": "notes", "limit": 2, "offset": 1}),
        ("list_libraries", {}),
        ("get_document", {"doc_id": "{tea}"}),
        ("get_document", {"doc_id": NOBODY}),
        ("get_document", {"doc_id": "no id"}),
        ("get_document", {"doc_id": "{tea}#x"}),
        ("ingest_file", {"path": "{letter}"}),
        ("ingest_file", {"path": "{folder}/missing.txt"}),
        ("ingest_file", {"path": "{folder}"}),
        ("ingest_file", {"path": " "}),
        ("ingest_file", {"path": "http://127.0.0.1/x"}),
        ("ingest_file", {"path": "{folder}/program.py"}),
        ("ingest_file", {"path": "{folder}/tune.mp3"}),
        ("ingest_file", {"path": "{folder}/blank.txt"}),
        ("ingest_file", {"path": "{folder}/new.md", "library": "new", "metadata": {"a": 1}}),
        ("ingest_url", {"url": "http://127.0.0.1/"}),
        ("ingest_url", {"url": "ftp://example.com/"}),
        ("ingest_url", {"url": "javascript:alert(1)"}),
        ("delete_document", {"doc_id": "{id}"}),
        ("delete_document", {"doc_id": "{id}"}),
    ],
    "vector_store": [
        ("vector_add", {"id": "three", "embedding": [0.0, 1.0, 0.0], "metadata": {"kind": "b"}}),
        ("vector_add", {"id": "bad", "embedding": [1.0]}),
        ("vector_add", {"id": "bad", "embedding": [0.0, 0.0, 0.0]}),
        ("vector_add", {"id": "bad", "embedding": []}),
        ("vector_search", {"query": [1.0, 0.2, 0.0]}),
        ("vector_search", {"query": [1.0, 0.2, 0.0], "k": 1}),
        ("vector_search", {"query": [1.0, 0.2, 0.0], "metadata_filter": {"kind": "axis"}}),
        ("vector_search", {"query": [0, 0, 1], "store_name": "other", "namespace": "n1"}),
        ("vector_search", {"query": [1.0, 0.2]}),
        ("vector_search", {"query": [1, 2, 3], "store_name": "nowhere"}),
        ("vector_count", {}),
        ("vector_count", {"store_name": "other", "namespace": "n1"}),
        ("vector_delete", {"id": "three"}),
        ("vector_delete", {"id": "three"}),
    ],
    "openrag": [
        ("query_documents", {"query": "how often do we change the certificate?"}),
        ("query_documents", {"query": "tea", "max_results": 1, "min_similarity": 0.0}),
        ("query_documents", {"query": "xylophone", "min_similarity": 0.99}),
        ("query_documents", {"query": " "}),
        ("query_documents", {"query": "tea", "max_results": 0}),
        ("list_documents", {}),
        ("get_stats", {}),
        ("ingest_document", {"file_path": "{letter}"}),
        ("ingest_document", {"file_path": "{folder}/new.md"}),
        ("ingest_document", {"file_path": "{folder}/missing.txt"}),
        ("ingest_document", {"file_path": "{folder}"}),
        ("ingest_document", {"file_path": "{folder}/blank.txt"}),
        ("ingest_document", {"file_path": "{folder}/latin.txt"}),
        ("ingest_document", {"file_path": "http://127.0.0.1:1/a.txt"}),
        ("delete_document", {"document_id": "{id}"}),
        ("delete_document", {"document_id": NOBODY}),
        ("delete_document", {"document_id": "no id"}),
    ],
    "qmd": [
        ("search", {"query": "tea"}),
        ("search", {"query": "\"signing key\" -tea", "limit": 3}),
        ("search", {"query": "xylophone"}),
        ("search", {"query": "tea", "collection": "nowhere", "limt": 2}),
        ("search", {"query": " "}),
        ("vsearch", {"query": ""}),
        ("query", {"query": ""}),
        ("search", {"query": "tea", "limit": 0}),
        ("search", {"query": "tea", "limit": -1}),
        ("search", {"query": "tea", "collection": "code", "minScore": 0.1}),
        ("vsearch", {"query": "how warm is water for a drink?"}),
        ("vsearch", {"query": "xylophone", "minScore": 0.99}),
        ("query", {"query": "when do we change the certificate"}),
        ("query", {"query": "xylophone"}),
        ("get", {"file": "notes/keys.md"}),
        ("get", {"file": "notes/keys.md:3", "maxLines": 2, "lineNumbers": True}),
        ("get", {"file": "notes/keys.md:3", "fromLine": 1}),
        ("get", {"file": "keys.md:3:2", "maxLines": 1}),
        ("get", {"file": "notes/keys.md", "fromLine": -7, "maxLines": 1}),
        ("get", {"file": "notes/keys.md", "fromLine": 1000}),
        ("get", {"file": "notes/keys.md", "maxLines": 0}),
        ("get", {"file": "notes/keys.md", "maxLines": -1}),
        ("get", {"file": "notes/kees.md"}),
        ("multi_get", {"pattern": "notes/2*/plan.md"}),
        ("multi_get", {"pattern": "notes/keys.md, notes/tea.md", "maxBytes": 60}),
        ("multi_get", {"pattern": "nothing/*.md"}),
        ("multi_get", {"pattern": "tea.md, te.md, notes/tea.md,nowhere-near-anything.md,"}),
        ("multi_get", {"pattern": "keys.md", "maxLines": 2, "lineNumbers": True}),
        ("multi_get", {"pattern": "keys.md", "maxLines": -1}),
        ("status", {}),
    ],
    "context_server": [
        ("store_context", {"thread_id": "garden", "source": "user", "text": "Water the tomatoes.",
                           "tags": ["Chore"], "metadata": {"priority": 1}}),
        ("store_context", {"thread_id": "", "source": "user", "text": "x"}),
        ("store_context", {"thread_id": "t", "source": "robot", "text": "x"}),
        ("store_context", {"thread_id": "t", "source": "user", "text": " "}),
        *(("store_context", {"thread_id": "t", "source": "user", "text": "x", "images": [image]})
          for image in ({}, {"data": " "}, {"data": 5}, {"data": "no base64!"}, {"data": "YQ"}, "x",
                        {"data": "YQ==", "mime_type": 5}, {"data": "YQ==", "metadata": 5})),
        ("search_context", {}),
        ("search_context", {"thread_id": "kitchen", "limit": 1, "explain_query": True}),
        ("search_context", {"tags": ["decision"]}),
        ("search_context", {"metadata": {"priority": 3}}),
        ("search_context", {"metadata_filters": [{"key": "priority", "operator": "gt", "value": 2}]}),
        ("search_context", {"metadata_filters": [{"key": "priority", "operator": "huge"}]}),
        ("search_context", {"start_date": "no date"}),
        ("search_context", {"limit": 1000}),
        ("get_context_by_ids", {"context_ids": [1, 3, 99]}),
        ("get_context_by_ids", {"context_ids": [1], "images": True}),
        ("get_context_by_ids", {"context_ids": []}),
        ("semantic_search_context", {"query": "what does Ana drink?"}),
        ("semantic_search_context", {"query": "tea", "thread_id": "garden", "explain_query": True}),
        ("fts_search_context", {"query": "tea", "highlight": True}),
        ("fts_search_context", {"query": "tomat", "mode": "prefix"}),
        ("fts_search_context", {"query": "green tea", "mode": "phrase"}),
        ("fts_search_context", {"query": "tea AND NOT coffee", "mode": "boolean"}),
        ("fts_search_context", {"query": "tea AND (", "mode": "boolean"}),
        ("hybrid_search_context", {"query": "tea for Ana"}),
        ("hybrid_search_context", {"query": "tea", "search_modes": ["fts"], "explain_query": True}),
        ("hybrid_search_context", {"query": "tea", "search_modes": ["smell"]}),
        ("hybrid_search_context", {"query": "xylophone", "limit": 2, "offset": 1}),
        ("update_context", {"context_id": 2, "text": "The kettle is descaled on Fridays."}),
        ("update_context", {"context_id": 3, "metadata_patch": {"done": True, "priority": None}}),
        ("update_context", {"context_id": 99, "text": "x"}),
        ("update_context", {"context_id": 3}),
        ("list_threads", {}),
        ("get_statistics", {}),
        ("store_context_batch", {"entries": [
            {"thread_id": "b", "source": "user", "text": "first"},
            {"thread_id": "b", "source": "nobody", "text": "second"}], "atomic": False}),
        ("store_context_batch", {"entries": [{"thread_id": "b", "source": "nobody", "text": "x"}]}),
        ("update_context_batch", {"updates": [{"context_id": 2, "tags": ["new"]}, {"context_id": 99}],
                                  "atomic": False}),
        ("delete_context", {"context_ids": [4, 99]}),
        ("delete_context", {}),
        ("delete_context_batch", {"thread_ids": ["b"]}),
        ("delete_context_batch", {}),
    ],
    "desk": [
        ("search", {"query": "how often do we change the certificate?"}),
        ("search", {"query": ["tea", "what does Ana drink?"], "limit": 3}),
        ("search", {"query": "tea", "kind": "memories"}),
        ("search", {"query": "tea", "library": "nowhere"}),
        ("search", {"query": "budget", "where": {"metadata.year": 2026}, "budget": 200}),
        ("search", {"query": ""}),
        ("search", {"query": "tea", "limit": 0}),
        ("read", {"place": "notes/keys.md"}),
        ("read", {"place": "keys.md:5", "around": 1}),
        ("read", {"place": "memory:1"}),
        ("read", {"place": "plan.md"}),
        ("read", {"place": "kees.md"}),
        ("grep", {"pattern": "tea|pump", "limit": 3}),
        ("grep", {"pattern": "(", "literal": True}),
        ("grep", {"pattern": "("}),
        ("verify", {"quotation": "rotated every ninety days"}),
        ("verify", {"quotation": "rotated every hundred days", "place": "keys.md"}),
        ("verify", {"quotation": "xylophone"}),
        ("similar", {"place": "notes/2026/plan.md", "limit": 2}),
        ("similar", {"place": "memory:99"}),
        ("remember", {"text": "Ana is allergic to nuts.", "tags": ["people"]}),
        ("remember", {"text": "The kettle is descaled on Fridays.", "replace": "memory:2"}),
        ("remember", {"text": " "}),
        ("ingest", {"source": "{letter}"}),
        ("ingest", {"source": "pasted.md", "text": "# Pasted\n\nA pasted text."}),
        ("ingest", {"source": "{folder}/missing.txt"}),
        ("update", {"place": "pasted.md", "tags": ["new"], "metadata": {"a": 1}}),
        ("update", {"place": "nothing.md", "title": "x"}),
        ("status", {}),
        ("forget", {"place": "pasted.md"}),
        ("forget", {"place": "memory:99"}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("surface", CALLS)
def test_a_surface_answers_as_recorded(
    surface: str,
    house: Database,
    tmp_path: Path,
    recorded: Recorded,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # errors name the working folder
    (tmp_path / "new.md").write_text("# New\n\nA new text.\n")
    (tmp_path / "program.py").write_text("print(1)")
    (tmp_path / "tune.mp3").write_bytes(b"ID3\x03\x00")
    (tmp_path / "blank.txt").write_text(" \n")
    (tmp_path / "latin.txt").write_bytes("Wärme".encode("latin-1"))
    ids = {document.source: document.id for document in house.documents.browse(limit=100)}
    known = {
        "letter": str(tmp_path / "letter.txt"),
        "folder": str(tmp_path),
        "id": ids[str(tmp_path / "letter.txt")],
        "tea": ids["tea.md"],
    }
    calls = [(tool, _filled(arguments, known)) for tool, arguments in CALLS[surface]]
    made = service(house, import_module(f"mcpvectordb_server.surfaces.{surface}").SURFACE)
    hello, listed, *replies = exchange(
        made,
        VERSIONS[-1],
        ("tools/list", {}),
        *(("tools/call", {"name": tool, "arguments": given}) for tool, given in calls),
    )
    assert {tool for tool, _ in calls} == {tool["name"] for tool in listed["tools"]}
    said = [
        {
            "call": tool,
            "arguments": given,
            "reply": {k: v for k, v in reply.items() if k != "_meta"},
        }
        for (tool, given), reply in zip(calls, replies, strict=True)
    ]
    recorded(f"wire_{surface}", {"instructions": hello["instructions"], "calls": said})
    recorded(f"tools_{surface}", listed["tools"])


def _filled(arguments: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """Arguments with names in braces replaced."""
    return {
        key: value.format(**known) if isinstance(value, str) and value.startswith("{") else value
        for key, value in arguments.items()
    }
