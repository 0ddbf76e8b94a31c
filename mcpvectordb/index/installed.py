"""The models of this machine: which one a new file gets, and the embedder for that of a file.

A process that searches by words alone does not load this.
"""

from __future__ import annotations

from pathlib import Path

from mcpvectordb.config import Config
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE, Model
from mcpvectordb.embedding.embedder import Embedder
from mcpvectordb.embedding.static import StaticEmbedder
from mcpvectordb.embedding.tokenizer import SHIPPED, TokenPipeline, tokenizer_of
from mcpvectordb.errors import ModelDamaged, ModelMissing
from mcpvectordb.index.models import ModelRow


def chosen(config: Config) -> Model:
    """The model that a new file gets: the one that is named, or the best one installed."""
    folder = config.models_folder()
    return weights.find(config.model, folder) if config.model else weights.default(folder)


def embedder(config: Config, name: str) -> Model:
    """The embedder of this name; raises ModelError if it is none, or not on this machine."""
    spec = weights.embedder(name, config.models_folder())
    weights.locate(spec, config.models_folder())
    return spec


def locate(config: Config, fixed: ModelRow) -> tuple[Model, dict[str, Path]]:
    """The model of a file and its files; raises ModelError if they are not on this machine."""
    folder = config.models_folder()
    spec = weights.find_build(fixed.name, fixed.digest, folder)
    return spec, weights.locate(spec, folder)


def load(config: Config, fixed: ModelRow) -> Embedder:
    """The embedder for the model of a file; raises ModelError."""
    spec, files = locate(config, fixed)
    if spec.endpoint:
        from mcpvectordb.embedding.endpoint import EndpointEmbedder

        return EndpointEmbedder(spec, fixed.digest, proxy=config.proxy)
    if spec.static:
        return StaticEmbedder(spec, files)
    from mcpvectordb.embedding.onnx import OnnxEmbedder

    return OnnxEmbedder(spec, files, cache=config.cache_folder())


def tokenizer(config: Config, name: str) -> TokenPipeline:
    """The tokenizer of a model, or the WordPiece of this package where that cannot be had.

    Its counts differ slightly from the model's, which is harmless: embedding says what is wrong,
    and what is found by words is stored all the same.
    """
    try:
        files = weights.locate(weights.find(name, config.models_folder()), config.models_folder())
        return tokenizer_of(files.get("tokenizer", SHIPPED))  # an endpoint has none
    except (ModelMissing, ModelDamaged):
        return tokenizer_of()


def catalogued(fixed: ModelRow) -> str:
    """The name of a file's model in the catalogue; "" if it is not in it."""
    known = CATALOGUE.get(fixed.name)
    return fixed.name if known and known.digest == fixed.digest else ""
