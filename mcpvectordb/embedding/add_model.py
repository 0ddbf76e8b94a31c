"""Add a user's model: any folder with an ONNX encoder and a tokenizer.json."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcpvectordb.embedding.catalogue import CATALOGUE, Model, ModelFile, Pooling
from mcpvectordb.embedding.embedder import OnnxEmbedder, checked
from mcpvectordb.embedding.weights import DESCRIPTION, adding, describe, sha256
from mcpvectordb.errors import EmbeddingFailed, InvalidInput

# No chunk has more than 2,000 tokens, and the memory of a run grows with the square of its length.
MOST_TOKENS = 2048
USUAL_TOKENS = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_POOLINGS: Mapping[str, Pooling] = {
    "mean_tokens": "mean",
    "mean": "mean",
    "cls_token": "cls",
    "cls": "cls",
}


def add(
    directory: Path,
    folder: Path,
    *,
    name: str | None = None,
    pooling: Pooling | None = None,
    query_prefix: str | None = None,
    document_prefix: str | None = None,
) -> Model:
    """Copy a model from `directory` into the model folder after a trial run, and return it.

    Without arguments, pooling (default: mean), prefixes (none) and the longest input (512 tokens)
    are read from the sentence-transformers files in the directory, and the name is the directory's.
    """
    name = name or directory.resolve().name
    check_name(name, folder)
    sources = _sources(directory)
    with adding(folder, name) as copy:
        copies = {
            role: Path(shutil.copyfile(path, copy / path.name)) for role, path in sources.items()
        }
        prompts = _json(directory / "config_sentence_transformers.json").get("prompts") or {}
        described = Model(
            name=name,
            dimension=1,
            max_tokens=_max_tokens(directory),
            pooling=pooling or "mean",
            query_prefix=query_prefix if query_prefix is not None else prompts.get("query") or "",
            document_prefix=document_prefix
            if document_prefix is not None
            else (prompts.get("document") or prompts.get("passage") or ""),
            files={
                role: ModelFile(path=path.name, sha256=sha256(path), size=path.stat().st_size)
                for role, path in copies.items()
            },
        )
        model = _tried(described, copies, directory, pooling)
        describe(model, copy)
    return model


def check_name(name: str, folder: Path, *, endpoint: bool = False) -> None:
    """Raise InvalidInput unless a model can be added under this name.

    An endpoint may take the place of another, which has nothing but its description.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"a model's name is made of letters, digits, dots, dashes and underscores, not {name!r}"
        )
    if name in CATALOGUE:
        raise InvalidInput(f"{name} is a model of the catalogue; give yours another name")
    files = sorted(path.name for path in (folder / name).glob("*"))
    if (folder / name).exists() and not (endpoint and files == [DESCRIPTION]):
        raise InvalidInput(
            f"there is a model {name} already; give another name, or remove {folder / name}"
        )


def _sources(directory: Path) -> dict[str, Path]:
    """The files to copy, by role."""
    if not directory.is_dir():
        raise InvalidInput(f"{directory} is not a folder")
    usual = filter(Path.is_file, (directory / "model.onnx", directory / "onnx" / "model.onnx"))
    every = sorted((*directory.glob("*.onnx"), *directory.glob("onnx/*.onnx")))
    graphs = [*usual][:1] or every
    if len(graphs) != 1:
        found = f"has several: {', '.join(path.name for path in graphs)}" if graphs else "has none"
        raise InvalidInput(
            f"a model's folder holds one ONNX file, or one called model.onnx; {directory} {found}"
        )
    graph, tokenizer = graphs[0], directory / "tokenizer.json"
    if not tokenizer.is_file():
        raise InvalidInput(f"{directory} has no tokenizer.json")
    files = {"model": graph, "tokenizer": tokenizer}
    for data in (graph.with_name(graph.name + end) for end in (".data", "_data")):
        if data.is_file():
            files["data"] = data
    return files


def _tried(
    model: Model, files: Mapping[str, Path], directory: Path, pooling: Pooling | None
) -> Model:
    """Return the model with its dimension, after checking it on a short and the longest text."""
    trial = OnnxEmbedder(model, files)
    try:
        try:
            tokens = trial.tokens.encode("a short text", trial.max_tokens)
        except Exception as error:  # `tokenizers` raises plain Exception for an invalid file
            raise InvalidInput(f"{directory / 'tokenizer.json'} cannot be used: {error}") from error
        output = trial.run(tokens)
        if output.ndim == 3:
            model = replace(model, pooling=_pooling(directory, pooling))
        model = replace(model, dimension=output.shape[-1])
        trial.close()
        trial = OnnxEmbedder(model, files)
        special = trial.tokens.encode("", model.max_tokens)
        checked(trial, ["a short text", "word " * (model.max_tokens - len(special))])
    except EmbeddingFailed as error:
        raise InvalidInput(f"{directory} cannot be used as a model: {error}") from error
    finally:
        trial.close()
    return model


def _pooling(directory: Path, given: Pooling | None) -> Pooling:
    """The given pooling, or the one that sentence-transformers would use.

    InvalidInput if that is not supported, or a step after it.
    """
    steps = [
        str(each.get("type")).rpartition(".")[2] for each in _json(directory / "modules.json", list)
    ]
    if unknown := set(steps) - {"Transformer", "Pooling", "Normalize"}:
        raise InvalidInput(
            f"{directory} needs a step after the ONNX graph that is not supported: "
            f"{', '.join(unknown)}"
        )
    if given:
        return given
    config = _json(directory / "1_Pooling" / "config.json")
    modes = [
        key.removeprefix("pooling_mode_")
        for key, value in config.items()
        if value is True and "_mode_" in key
    ]
    modes = modes or [config.get("pooling_mode") or "mean"]
    if len(modes) > 1 or modes[0] not in _POOLINGS:
        raise InvalidInput(
            f"{directory} asks for {' and '.join(modes)} pooling; only mean and cls are supported"
        )
    return _POOLINGS[modes[0]]


def _max_tokens(directory: Path) -> int:
    lengths = (
        _json(directory / "sentence_bert_config.json").get("max_seq_length"),
        _json(directory / "tokenizer_config.json").get("model_max_length"),
    )
    # A tokenizer without a limit declares an extremely large one.
    known = [
        int(each) for each in lengths if isinstance(each, int | float) and 2 < each < 1_000_000
    ]
    return min(known[0] if known else USUAL_TOKENS, MOST_TOKENS)


def _json(path: Path, kind: type = dict) -> Any:
    """The file's content, or an empty value of the kind if there is no file."""
    if not path.is_file():
        return kind()
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from error
    if not isinstance(content, kind):
        raise InvalidInput(
            f"{path} holds a JSON {type(content).__name__} where a {kind.__name__} was expected"
        )
    return content
