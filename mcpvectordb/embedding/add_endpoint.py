"""Add an endpoint: a server that embeds or reranks, described on this machine after a trial."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from mcpvectordb.config import Config
from mcpvectordb.embedding import fingerprint, weights
from mcpvectordb.embedding.add_model import USUAL_TOKENS, check_name
from mcpvectordb.embedding.catalogue import Endpoint, Model, ModelKind
from mcpvectordb.embedding.endpoint import InputRefused
from mcpvectordb.errors import InvalidInput, Refused, quoted
from mcpvectordb.network.addresses import parse_url
from mcpvectordb.network.connection import Deadline

LONGEST_TIMEOUT = 3_600.0
_TEXTS = ("Tea is steeped for three minutes.", "The budget of the year 2025 was approved.")
_QUESTION = "How long does tea steep?"
_SEARCH = "Represent this sentence for searching relevant passages: "
# What models were trained to see in front of a query and a passage, by the beginning of the name
# that servers give them, without a namespace; the longer beginning comes first.
PREFIXES = (
    ("nomic-embed-text", "search_query: ", "search_document: "),
    ("text-embedding-nomic-embed-text", "search_query: ", "search_document: "),
    ("multilingual-e5", "query: ", "passage: "),
    ("snowflake-arctic-embed2", "query: ", ""),
    ("snowflake-arctic-embed-l-v2", "query: ", ""),
    ("snowflake-arctic-embed-m-v2", "query: ", ""),
    ("snowflake-arctic-embed", _SEARCH, ""),
    ("mxbai-embed-large", _SEARCH, ""),
    ("bge-small-en", _SEARCH, ""),
    ("bge-base-en", _SEARCH, ""),
    ("bge-large-en", _SEARCH, ""),
    ("embeddinggemma", "task: search result | query: ", "title: none | text: "),
)


def add_endpoint(
    name: str,
    *,
    url: str,
    model: str,
    kind: ModelKind = "embedder",
    key_variable: str = "",
    query_prefix: str | None = None,
    document_prefix: str | None = None,
    max_tokens: int = USUAL_TOKENS,
    dimensions: int | None = None,
    batch_size: int = 32,
    timeout: float = 120.0,
    query_timeout: float = 5.0,
    config: Config | None = None,
) -> Model:
    """Try a server's `/embeddings` or `/rerank`, and keep its description under a name.

    The name is then one for `Config(model=...)`, `Database.use_model` and, of a reranker,
    `Config(reranker=...)`. An endpoint that has the name already is replaced.

    url              the server's URL up to the route, such as http://localhost:11434/v1; http only
                     for this machine and private networks
    model            what the server calls the model
    key_variable     the environment variable that has the key, or its entry in the keyring under
                     the service mcpvectordb; the key itself is kept nowhere
    query_prefix     text in front of queries, and document_prefix in front of passages; without
                     them those that the model is known to need
    max_tokens       the longest text of the model; longer ones are sent in parts
    dimensions       values per vector to ask for, of models that can give fewer
    batch_size       most texts in a request
    timeout          seconds for a request with passages, retries included
    query_timeout    seconds for a query; words alone find what there is then
    """
    config = config or Config()
    folder = config.models_folder()
    check_name(name, folder, replaced=_is_endpoint)
    if kind not in ("embedder", "reranker"):
        raise InvalidInput(f"kind must be embedder or reranker, not {kind!r}")
    _check_variable(key_variable)
    for given, value, least, most in (
        ("max_tokens", max_tokens, 32, 1_000_000),
        ("dimensions", 1 if dimensions is None else dimensions, 1, 8192),
        ("batch_size", batch_size, 2, 2_048),
    ):
        if not least <= value <= most:
            raise InvalidInput(f"{given} must be {least} to {most}, not {value}")
    for given, seconds in (("timeout", timeout), ("query_timeout", query_timeout)):
        if not 0 < seconds <= LONGEST_TIMEOUT:
            raise InvalidInput(f"{given} must be above 0 and at most 3600 seconds, not {seconds}")
    server = Endpoint(
        url=_base(url, "rerank" if kind == "reranker" else "embeddings"),
        model=model,
        key_variable=key_variable,
        dimensions=dimensions,
        batch_size=batch_size,
        timeout=timeout,
        query_timeout=query_timeout,
    )
    known = _known_prefixes(model)
    described = Model(
        name=name,
        dimension=1,
        max_tokens=max_tokens,
        files={},
        query_prefix=known[0] if query_prefix is None else query_prefix,
        document_prefix=known[1] if document_prefix is None else document_prefix,
        kind=kind,
        endpoint=server,
    )
    try_out = _tried_reranker if kind == "reranker" else _tried_embedder
    tried = try_out(described, server, config.proxy)
    with weights.adding(folder, name) as made:
        weights.describe(tried, made)
    return tried


def _check_variable(name: str) -> None:
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
        # It is not repeated: somebody may have given the key itself.
        raise InvalidInput(
            "key_variable is the name of an environment variable, such as OPENAI_API_KEY, never "
            "the key itself"
        )
    if name.startswith(Config.ENV_PREFIX):
        raise InvalidInput(
            f"variables that begin with {Config.ENV_PREFIX} are settings; name the key's "
            "variable differently"
        )


def _base(url: str, route: str) -> str:
    """The URL without the route; InvalidInput if there is anything in it that could be a secret."""
    try:
        parse_url(url)
    except Refused as error:
        if "@" in url:  # what stands before it is not repeated
            raise InvalidInput(
                "the URL of an endpoint has no user and password; name the key's variable instead"
            ) from None
        raise InvalidInput(str(error)) from None
    if "?" in url or "#" in url:
        raise InvalidInput(
            f"the URL of an endpoint has nothing after its path: {re.split('[?#]', url)[0]}"
        )
    return url.rstrip("/").removesuffix(f"/{route}")


def _known_prefixes(model: str) -> tuple[str, str]:
    family = model.rpartition("/")[2].lower()
    return next(
        ((query, passage) for start, query, passage in PREFIXES if family.startswith(start)),
        ("", ""),
    )


def _tried_embedder(model: Model, server: Endpoint, proxy: str) -> Model:
    """The model with its dimension and fingerprint, after a trial of texts alone and together."""
    from mcpvectordb.embedding.endpoint_embedder import EndpointEmbedder

    embedder = EndpointEmbedder(model, "", proxy=proxy)
    together = embedder.trial([fingerprint.TEXT, *_TEXTS])
    alone = [embedder.trial([text])[0] for text in _TEXTS]
    dimension = together.shape[1]
    if server.dimensions not in (None, dimension):
        raise InvalidInput(
            f"{server.url} was asked for vectors of {server.dimensions} values and gave "
            f"{dimension}: {server.model} has no others, or the server does not pass that on"
        )
    for row, single in zip(together[1:], alone, strict=True):
        if row.shape != single.shape or row @ single < fingerprint.SAME:
            raise InvalidInput(
                f"{server.url} gives a text another vector alone than among others (their cosine "
                f"is below {fingerprint.SAME}), so that nothing would be found again by it"
            )
    server = replace(server, fingerprint=fingerprint.of(together[0]))
    return replace(model, dimension=dimension, endpoint=server)


def _tried_reranker(model: Model, server: Endpoint, proxy: str) -> Model:
    """The model with the dialect of its server, after a trial of a passage against another."""
    try:
        found = _ranked(model, server, proxy)
    except InputRefused:
        server = replace(server, passages="texts")
        found = _ranked(model, server, proxy)
    if found[0] <= found[1]:
        raise InvalidInput(
            f"{server.url} does not rank: to {quoted(_QUESTION)} it prefers {quoted(_TEXTS[1])}"
        )
    logits = not all(0 <= score <= 1 for score in found)
    return replace(model, endpoint=replace(server, logits=logits))


def _ranked(model: Model, server: Endpoint, proxy: str) -> list[float]:
    from mcpvectordb.embedding.endpoint_reranker import EndpointReranker

    reranker = EndpointReranker(replace(model, endpoint=server), proxy=proxy)
    return reranker.raw_scores(_QUESTION, _TEXTS, Deadline(server.timeout))


def _is_endpoint(folder: Path) -> bool:
    """Whether the folder of an added model has the description of an endpoint only."""
    return [path.name for path in folder.iterdir()] == [weights.DESCRIPTION]
