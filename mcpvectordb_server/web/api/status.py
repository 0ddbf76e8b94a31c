"""/api/status and /api/space: how the file is."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from mcpvectordb import Coverage, Stats
from mcpvectordb_server.web.api.search import BacklogReply
from mcpvectordb_server.web.shown import Shown
from mcpvectordb_server.web.site import Site

FileReply = Annotated[Stats, Shown("FileReply", "The file itself.", only="path bytes format")]


class ModelReply(TypedDict):
    """The embedding model of the file; `reason` says why it is missing.

    `embeddings` is the type in which the file stores what it makes: float32 or float16.
    """

    name: str
    dimension: int
    embeddings: str
    chunk_size: int
    chunk_overlap: int
    state: Literal["loading", "ready", "missing"]
    reason: str


CoverageReply = Annotated[
    Coverage,
    Shown("CoverageReply", "How many documents are found by meaning.", without="contents_waiting"),
]


class BacklogsReply(TypedDict):
    """What waits for its embedding on each shelf."""

    documents: BacklogReply
    memories: BacklogReply


class JobCounts(TypedDict):
    """Jobs of this server by their state."""

    running: int
    queued: int
    failed: int


class EmbeddingReply(TypedDict):
    """How fast what waits is embedded, by this process; null while that is not known."""

    pending: int
    per_minute: float | None
    seconds_left: float | None


class StatusReply(TypedDict):
    """Counts and sizes of the file, its model, and what goes on."""

    file: FileReply
    documents: int
    libraries: int
    passages: int
    pending: int
    memories: int
    threads: int
    tags: int
    vectors: int
    stores: int
    model: ModelReply
    unavailable: dict[str, str]
    coverage: CoverageReply
    backlog: BacklogsReply
    embedding: EmbeddingReply
    passed_over: int
    notes: list[str]
    read_only: bool
    revision: int
    jobs: JobCounts


class SpacePart(TypedDict):
    """A kind of content, and the bytes that it takes."""

    name: str
    bytes: int


class SpaceReply(TypedDict):
    """What takes space in the file, the largest first."""

    bytes: int
    parts: list[SpacePart]


def status(site: Site) -> StatusReply:
    """Counts, sizes, the model, what waits, and what goes on."""
    db = site.db
    stats, memories = db.stats(), db.memories.statistics()
    missing = memories.unavailable.get("vector", "")
    states = [job.state for job in site.jobs.newest_first()]
    return StatusReply(
        file=stats,
        documents=stats.documents,
        libraries=stats.libraries,
        passages=stats.chunks,
        pending=stats.pending,
        memories=stats.memories,
        threads=memories.threads,
        tags=memories.tags,
        vectors=stats.vectors,
        stores=stats.stores,
        model=ModelReply(
            name=stats.model,
            dimension=stats.dimension,
            embeddings=stats.embeddings,
            chunk_size=stats.chunk_size,
            chunk_overlap=stats.chunk_overlap,
            state="missing" if missing else "loading" if db.loading else "ready",
            reason=missing,
        ),
        unavailable=dict(memories.unavailable),
        coverage=db.documents.coverage(),
        backlog=BacklogsReply(documents=db.documents.backlog(), memories=db.memories.backlog()),
        embedding=_embedding(site, stats.pending),
        passed_over=len(db.documents.passed_over(limit=1_000)),
        notes=list(stats.notes),
        read_only=db.read_only,
        revision=site.watch.revision,
        jobs=JobCounts(
            running=states.count("running"),
            queued=states.count("queued"),
            failed=states.count("failed"),
        ),
    )


def space(site: Site) -> SpaceReply:
    """What takes space in the file; every page of it is read for that."""
    parts = site.db.space()
    return SpaceReply(
        bytes=sum(parts.values()),
        parts=[SpacePart(name=name, bytes=size) for name, size in parts.items() if size],
    )


def _embedding(site: Site, pending: int) -> EmbeddingReply:
    rate = site.pace.per_second(pending)
    return EmbeddingReply(
        pending=pending,
        per_minute=None if rate is None else round(60 * rate, 1),
        seconds_left=None if not rate else round(pending / rate, 1),
    )
