"""The REST API: its replies and its description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcpvectordb import Database
from mcpvectordb_server.web.api import ROUTES
from mcpvectordb_server.web.openapi import describe
from tests.goldens.recorded import Recorded
from tests.server.web.support_web_server import Served

# `{tea}` is the id of a note, `{chunk}` that of a passage.
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/api/search", {"query": "how often do we change the certificate?"}),
    ("POST", "/api/search", {"query": "tea", "kind": "memories"}),
    ("POST", "/api/search", {"query": "xylophone", "mode": "text"}),
    ("POST", "/api/search", {"query": "tea", "limit": -1}),
    ("POST", "/api/search", {"query": 5}),
    ("POST", "/api/search", {"query": "tea -nothing", "kind": "documents", "text": True}),
    ("POST", "/api/search", {"query": ""}),
    ("POST", "/api/search", {"query": '"'}),
    ("POST", "/api/compare", {"query": "tea"}),
    ("GET", "/api/chunks/{chunk}", None),
    ("GET", "/api/chunks/{chunk}/similar", None),
    ("GET", "/api/documents?limit=3", None),
    ("GET", "/api/documents?library=notes&limit=1&offset=2", None),
    ("GET", "/api/documents?limit=no", None),
    ("GET", "/api/documents?library=notes&sort=title&limit=2&offset=1", None),
    ("GET", "/api/documents?title=TEA", None),
    ("GET", "/api/documents?file_type=py", None),
    ("GET", "/api/documents?until=2001", None),
    ("GET", "/api/documents?library=nots", None),
    ("GET", "/api/documents?library=notes&folder=2026&direct=true", None),
    ("GET", "/api/documents?folder=2026", None),
    ("GET", "/api/documents/{tea}", None),
    ("GET", "/api/documents/00000000-0000-4000-8000-000000000000", None),
    ("PATCH", "/api/documents/{tea}", {"title": "Green tea"}),
    ("PATCH", "/api/documents/{tea}", {"metadata_patch": {"a": None, "c": 3}}),
    ("PATCH", "/api/documents/{tea}", {"title": " "}),
    ("PATCH", "/api/documents/none", {"title": "x"}),
    ("GET", "/api/documents/{tea}/text", None),
    ("GET", "/api/documents/{tea}/text?line=2&lines=1", None),
    ("GET", "/api/documents/{tea}/text?line=100", None),
    ("GET", "/api/documents/{tea}/chunks", None),
    ("GET", "/api/documents/{tea}/similar", None),
    ("GET", "/api/chunks/999999", None),
    ("GET", "/api/folders?library=notes", None),
    ("GET", "/api/folders?library=notes&path=2026", None),
    ("GET", "/api/folders", None),
    ("GET", "/api/file_types", None),
    ("GET", "/api/passed_over", None),
    ("GET", "/api/libraries", None),
    ("PATCH", "/api/libraries/notes", {"description": "What we know."}),
    ("POST", "/api/libraries/nowhere/delete", {}),
    ("GET", "/api/memories", None),
    ("GET", "/api/memories?limit=1&offset=1", None),
    ("GET", "/api/memories?thread=kitchen&source=user", None),
    ("GET", "/api/memories?tags=decision&tags=people", None),
    ("GET", "/api/memories?tags=decisio", None),
    ("GET", "/api/memories?until=2001", None),
    ("POST", "/api/memories", {"thread": "garden", "text": "Peas in April.", "tags": ["plan"]}),
    ("POST", "/api/memories", {"thread": "garden", "text": ""}),
    ("GET", "/api/memories/1", None),
    ("GET", "/api/memories/99", None),
    ("PATCH", "/api/memories/1", {"tags": ["people"]}),
    ("PATCH", "/api/memories/1", {}),
    ("POST", "/api/memories/delete", {"ids": [1, 99], "dry_run": True}),
    ("GET", "/api/memories/1/similar", None),
    ("POST", "/api/memories/delete", {"ids": [2]}),
    ("GET", "/api/threads", None),
    ("GET", "/api/tags", None),
    ("GET", "/api/timeline", None),
    ("GET", "/api/stores", None),
    ("GET", "/api/vectors?store=default", None),
    ("POST", "/api/vectors", {"id": "new", "embedding": [0, 1, 0]}),
    ("POST", "/api/vectors/search", {"embedding": [1, 0, 0]}),
    ("POST", "/api/vectors/search", {"like": "new"}),
    ("POST", "/api/vectors/search", {"like": "none"}),
    ("POST", "/api/vectors/search", {"embedding": [1.0], "like": "new"}),
    ("POST", "/api/vectors/search", {}),
    ("POST", "/api/vectors/delete", {"id": "new"}),
    ("POST", "/api/ingest/text", {"text": "# Typed\n\nA typed note.", "source": "typed.md"}),
    ("POST", "/api/ingest/text", {"text": " ", "source": "empty.md"}),
    ("POST", "/api/ingest/text", {"text": "Another text.", "source": "typed.md"}),
    ("POST", "/api/ingest/text", {"text": "Another.", "source": "typed.md", "replace": True}),
    ("POST", "/api/ingest/url", {"url": "file:///etc/passwd"}),
    ("POST", "/api/ingest/url", {"url": ""}),
    ("GET", "/api/jobs", None),
    ("GET", "/api/jobs/none", None),
    ("GET", "/api/history", None),
    ("GET", "/api/history/1/diff", None),
    ("GET", "/api/history/99/diff", None),
    ("POST", "/api/undo", {"change": 99}),
    ("POST", "/api/undo", {}),
    ("GET", "/api/duplicates", None),
    ("GET", "/api/nothing", None),
    ("POST", "/api/documents/delete", {"ids": ["{tea}"]}),
]


def test_the_api_answers_as_recorded(house: Database, tmp_path: Path, recorded: Recorded) -> None:
    tea = next(each for each in house.documents.browse(limit=100) if each.source == "tea.md")
    chunk = house.documents.search("green tea", library="notes")[0].item.id
    served, said = Served(house), []
    try:
        for method, path, body in REQUESTS:
            path = path.replace("{tea}", tea.id).replace("{chunk}", str(chunk))
            if body and body.get("ids") == ["{tea}"]:
                body = {"ids": [tea.id]}
            status, reply = served.ask(method, path, body)
            request = {"request": f"{method} {path}", "body": body}
            said.append({**request, "status": status, "reply": reply})
    finally:
        served.stop()
    recorded("rest", said)


def test_its_description_is_as_recorded(recorded: Recorded) -> None:
    recorded("openapi", describe(ROUTES))
