"""Text to vectors: the catalogue of models, where their weights come from, and the ONNX embedder that runs them."""

from mcpvectordb.embedding.adding import add
from mcpvectordb.embedding.catalogue import CATALOGUE, Model, ModelFile
from mcpvectordb.embedding.embedder import Embedder, checked
from mcpvectordb.embedding.onnx import OnnxEmbedder
from mcpvectordb.embedding.tokenizer import TokenPipeline
from mcpvectordb.embedding.weights import added, default, find, installed, locate, pull, verify

__all__ = [
    "CATALOGUE",
    "Embedder",
    "Model",
    "ModelFile",
    "OnnxEmbedder",
    "TokenPipeline",
    "add",
    "added",
    "checked",
    "default",
    "find",
    "installed",
    "locate",
    "pull",
    "verify",
]
