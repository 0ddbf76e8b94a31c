"""A server on the loopback interface that embeds and reranks as Ollama, OpenAI, Cohere and TEI do."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mcpvectordb import Config, add_endpoint
from mcpvectordb.embedding.catalogue import Model
from mcpvectordb.embedding.embedder import Embedder
from tests.support import Letters

Answer = Callable[["EndpointHandler", Any], None]


class Mirrored(Letters):
    """Another model of the same dimension: the same letters in the opposite order."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        return super().embed(texts, query=query)[:, ::-1]


@dataclass
class EndpointServer:
    """What the server answers and what it was asked: `server.faults.append(answer)`.

    A fault is the answer to one request, the first of them to the next; `fault` is the answer to
    all, if it is given.
    """

    embedder: Embedder = field(default_factory=Letters)
    url: str = ""
    key: str = ""
    faults: list[Answer] = field(default_factory=list)
    fault: Answer | None = None
    most_texts: int = 1_000
    longest_text: int = 100_000
    scores: str = "relevance_score"
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    def texts(self) -> list[list[str]]:
        """The inputs of all requests so far, without the text of the fingerprint."""
        return [body["input"][1:] for path, _, body in self.asked if path.endswith("/embeddings")]

    def embeddings(self, handler: EndpointHandler, body: Any) -> None:
        texts = body["input"]
        if len(texts) > self.most_texts:
            handler.send(413, {"error": "too many texts", "error_type": "Validation"})
        elif any(len(text) > self.longest_text for text in texts):
            handler.send(400, {"error": {"message": "the input length exceeds the context length"}})
        else:
            rows = self.embedder.embed(texts)[:, : body.get("dimensions")]
            handler.send(200, {"object": "list", "data": [item(*each) for each in enumerate(rows)]})

    def rerank(self, handler: EndpointHandler, body: Any) -> None:
        """The share of the query's words in each passage, in the dialect of the server."""
        dialect = {"score": "texts"}.get(self.scores, "documents")
        if dialect not in body:
            handler.send(422, {"error": f"missing field `{dialect}`"})
            return
        words = set(body["query"].casefold().split())
        shares = [len(words & set(text.casefold().split())) / len(words) for text in body[dialect]]
        results = [{"index": n, self.scores: share} for n, share in enumerate(shares)]
        results.sort(key=lambda result: -float(result[self.scores]))
        handler.send(200, results if dialect == "texts" else {"results": results})


def item(index: int, row: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": [float(value) for value in row]}


class EndpointHandler(BaseHTTPRequestHandler):
    server_state: EndpointServer

    def do_POST(self) -> None:
        state = self.server_state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        state.asked.append((self.path, headers, body))
        with suppress(BrokenPipeError, ConnectionResetError):  # the client closed the connection
            self.answer(state, body)
        self.close_connection = True

    def answer(self, state: EndpointServer, body: Any) -> None:
        fault = state.faults.pop(0) if state.faults else state.fault
        if fault:
            fault(self, body)
        elif state.key and self.headers["Authorization"] != f"Bearer {state.key}":
            self.send(401, {"error": {"message": f"no such key: {self.headers['Authorization']}"}})
        elif self.path.endswith("/embeddings"):
            state.embeddings(self, body)
        elif self.path.endswith("/rerank"):
            state.rerank(self, body)
        else:
            self.send(404, {"error": "not found"})

    def send(self, status: int, content: Any, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        known = {"Content_Type": "application/json", "Content_Length": str(len(body))}
        for name, value in (known | headers).items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def says(status: int, content: Any = b"", **headers: str) -> Answer:
    """An answer of this status, body and headers."""
    return lambda handler, _: handler.send(status, content, **headers)


def json_values(names: list[str]) -> st.SearchStrategy[Any]:
    """Any JSON, most of it objects with these names."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    return st.recursive(
        leaves | st.integers(0, 2),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(names), inner, max_size=3)
        ),
        max_leaves=30,
    )


@contextmanager
def serving(state: EndpointServer, port: int = 0) -> Iterator[EndpointServer]:
    handler = type("BoundHandler", (EndpointHandler,), {"server_state": state})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=[0.02])
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def added(state: EndpointServer, folder: Path, name: str = "mine", **options: Any) -> Model:
    """Add the server as an endpoint, then forget that it was asked."""
    model = add_endpoint(
        name, url=state.url, model="letters-1", config=Config(models_dir=str(folder)), **options
    )
    state.asked.clear()
    return model
