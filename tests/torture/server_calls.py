"""A server process that receives calls of every kind, one after the other."""

from __future__ import annotations

import random
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mcpvectordb import Config, Database
from mcpvectordb_server.server import WARM_AFTER
from mcpvectordb_server.surfaces import NAMES, load
from tests.server.clients import service
from tests.support import Letters
from tests.torture.hostile_calls import Session
from tests.torture.support_torture import WORDS, Resources, ResourceUsage, some_text

# The largest numbers at a time: later ones replace earlier ones.
FILES, VECTORS, ENTRIES = 8, 40, 40
CLEARED = 500  # calls after which all documents are deleted


def possible_calls(
    rng: random.Random, folder: Path, number: int
) -> list[tuple[str, dict[str, Any]]]:
    """One call of each kind, over all surfaces."""
    file, words = folder / f"{rng.randrange(FILES)}.txt", " ".join(rng.choices(WORDS, k=3))
    id, thread = f"v{rng.randrange(VECTORS)}", f"t{rng.randrange(ENTRIES)}"
    embedding = [rng.uniform(-1, 1) for _ in range(8)]
    if rng.random() < 0.1 or not file.exists():
        file.write_text(some_text(rng))
    return [
        ("ingest_file", {"path": str(file), "metadata": {"n": number}}),
        ("search", {"query": words, "top_k": 5}),
        ("list_documents", {"limit": 5}),
        ("list_libraries", {}),
        ("get_stats", {}),
        ("get_document", {"doc_id": id}),
        ("ingest_document", {"file_path": str(file)}),
        ("query_documents", {"query": words, "min_similarity": 0}),
        ("vector_add", {"id": id, "embedding": embedding, "metadata": {"n": number}}),
        ("vector_count", {}),
        ("vector_search", {"query": embedding, "k": 5, "metadata_filter": {"n": number}}),
        ("vector_delete", {"id": id}),
        ("delete_context", {"thread_id": thread}),
        ("list_threads", {}),
        ("get_statistics", {}),
        (
            "store_context",
            {"thread_id": thread, "source": "user", "text": words, "tags": [words[:5]]},
        ),
        ("fts_search_context", {"query": words, "highlight": True}),
        ("hybrid_search_context", {"query": words, "limit": 5}),
        ("search_context", {"metadata": {"n": number}}),
        ("semantic_search_context", {"query": words}),
        ("qmd_search", {"query": words}),
        ("vsearch", {"query": words}),
        ("status", {}),
        (
            "query" if rng.random() < 0.1 else "qmd_search",
            {"query": words},
        ),  # which reads again what it found, and takes long
        ("get", {"file": file.name}),
        ("multi_get", {"pattern": "*.txt"}),
        ("get", {"file": "missing", "fromLine": "x"}),
        ("vector_add", {"id": id, "embedding": "none"}),
        ("ingest_url", {"url": "http://127.0.0.1:9/"}),
    ]


def serve(path: Path, count: int, measurements: int, answer: Connection) -> None:
    """What a child process does: `count` calls to one server, with regular measurements."""
    rng, taken = random.Random("a server's long life"), []
    with Database(path, embedder=Letters(), config=Config(rerank_memories=False)) as db:
        with Session.with_server(service(db, *map(load, NAMES))) as session:
            call_tool(session, "query", {"query": "what is loaded once is loaded then"})
            for each in possible_calls(rng, path.parent, 0):
                call_tool(session, *each)
            time.sleep(WARM_AFTER + 0.5)
            for number in range(count):
                call_tool(session, *rng.choice(possible_calls(rng, path.parent, number)))
                if number % CLEARED == CLEARED - 1:
                    for document in db.documents.browse(limit=1_000):
                        call_tool(session, "delete_document", {"doc_id": document.id})
                if number % (count // measurements) == 0:
                    taken.append(Resources.now())
            taken.append(Resources.now())
        before = db.stats().bytes
        db.documents.ingest_text("so that something is left", source="x")
        db.compact()
        answer.send(ResourceUsage(taken, before, db.stats().bytes))


def call_tool(session: Session, tool: str, arguments: dict[str, Any]) -> None:
    """Call a tool and ignore the reply."""
    reply = session.request("tools/call", {"name": tool, "arguments": arguments})
    assert "result" in reply and "inside the server" not in str(reply), reply
