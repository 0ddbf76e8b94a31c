"""`python -m benchmarks NAME [options]`."""

from __future__ import annotations

import sys
from importlib import import_module

from mcpvectordb import MCPVectorDBError

# Each is the module of that name, with a `main(arguments)`.
BENCHMARKS = {
    "quality": "how well searches find what people judged relevant, on collections in BEIR layout",
    "known_items": "how well searches find the passages of a file of one's own, and with which "
    "vector weight",
    "relevance": "how well the relevance of results predicts judgments, and the weights for it",
    "chunking": "how well chunks fit the passages that answer questions",
    "reading": "how well files are read, beside other readers, on any folder with expected texts",
    "vectors": "how fast vectors are added and found, beside other engines",
    "words": "how fast passages are found by words, beside other engines",
    "hybrid": "how fast passages are found by words and meaning together, beside other engines",
    "ingest": "how fast files come in, beside what the model alone could do",
    "mixed": "whether a folder of mixed files keeps all processors busy",
    "writes": "how long it takes to store texts without embedding them",
    "imports": "what it costs to move in, with embeddings kept and without",
    "start": "what it costs to begin: import, help, server, first answer",
    "memory": "how much memory a server, searches and ingest take; with --data FILE, how well "
    "agents remember long conversations",
    "filesize": "how large a file is, fresh and after much rewriting",
    "hooks": "what a hook of an agent host costs at each event",
    "growth": "what adding and searching cost as the rows grow, with a plot",
    "memories": "what a memory of agents costs as it grows: browsing it, and searching it beside "
    "documents",
    "postgres": "what it costs to publish a file to PostgreSQL as it grows",
    "published": "whether PostgreSQL finds what the file finds, and what a question costs there",
    "remotes": "what it costs that machines exchange what changed, through a folder",
    "secrets": "which secrets memories leave out, and what they take for one",
    "sync": "what it costs to sync files that have not changed, in bare walks",
    "walks": "which modules a request passes through, and what it does more than once",
}


def main(arguments: list[str]) -> None:
    """Run the benchmark that the first argument names with the other arguments."""
    if not arguments or arguments[0] not in BENCHMARKS:
        listed = "\n".join(f"  {name:11} {what}" for name, what in BENCHMARKS.items())
        sys.exit(f"usage: python -m benchmarks NAME [--help]\n\n{listed}")
    try:
        import_module(f"benchmarks.{arguments[0]}").main(arguments[1:])
    except MCPVectorDBError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
