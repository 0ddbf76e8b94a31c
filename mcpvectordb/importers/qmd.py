"""The index of qmd: its collections as libraries that follow their folders, and their documents.

Newer versions keep the collections in the table store_collections, older ones in a YAML file: in
the folder of the index, or in ~/.config/qmd beside ~/.cache/qmd, where the index usually is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from mcpvectordb.importers import values
from mcpvectordb.importers.foreign_database import ForeignDatabase
from mcpvectordb.importers.items import (
    FollowedFolder,
    ImportedDocument,
    ImportOptions,
    Item,
    LeftOut,
    NotKept,
)
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.importers.vec0_vectors import Vec0Vectors

LONGEST_YAML = 100_000  # bytes: the parser takes seconds for more


def recognises(source: ImportSource) -> bool:
    """Whether it has qmd's tables."""
    return source.has(content="hash doc", documents="collection path hash active")


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """The collections, then the documents, whose sources are the paths of their files."""
    database = source.sqlite()
    roots: dict[str, str] = {}
    for name, settings in _collections(source, database):
        followed = _followed(name, settings)
        roots[name] = followed.root
        if not options.library:
            yield followed
        if settings.get("update"):
            yield NotKept(what="the update command of a collection")
    vectors = Vec0Vectors(database, "vectors_vec")
    for collection, path, hash, modified, active in database.rows(
        "documents", "collection", "path", "hash", "modified_at", "active"
    ):
        root = roots.get(str(collection))
        place = (
            str(Path(root, *PurePosixPath(str(path)).parts))
            if root
            else f"qmd://{collection}/{path}"
        )
        if not active:
            yield LeftOut(id=place, reason="its file was deleted, as qmd noticed")
            continue
        text = next(database.lookup("content", ("doc",), "hash", [str(hash)]), (None,))[0]
        if not isinstance(text, str):
            yield LeftOut(id=place, reason="its text could not be read")
            continue
        embeddings, model = _embeddings(database, vectors, str(hash), text)
        yield ImportedDocument(
            id=place,
            text=text,
            library=options.library or str(collection),
            modified=values.time(modified),
            embeddings=embeddings,
            model=model,
        )


def _collections(
    source: ImportSource, database: ForeignDatabase
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The name and the settings of each collection, as they are in the YAML file."""
    found = False
    for name, folder, pattern, ignore, context, command in database.rows(
        "store_collections", "name", "path", "pattern", "ignore_patterns", "context",
        "update_command",
    ):  # fmt: skip
        found = True
        yield (
            str(name),
            {
                "path": folder,
                "pattern": pattern,
                "ignore": values.json_value(ignore),
                "context": values.json_value(context),
                "update": command,
            },
        )
    if not found:
        for name, settings in _configured(source).items():
            if isinstance(settings, Mapping):
                yield str(name), settings


def _configured(source: ImportSource) -> Mapping[str, Any]:
    """The collections of the YAML file that belongs to an index; empty if there is none."""
    import yaml

    for folder in (source.beside, source.beside / ".config" / "qmd"):
        file = folder / f"{source.path.stem}.yml"
        if file.is_file() and file.stat().st_size <= LONGEST_YAML:
            try:
                found = yaml.safe_load(file.read_text("utf-8"))
            except (OSError, ValueError, yaml.YAMLError, RecursionError):
                continue
            if isinstance(found, Mapping) and isinstance(found.get("collections"), Mapping):
                collections: Mapping[str, Any] = found["collections"]
                return collections
    return {}


def _followed(name: str, settings: Mapping[str, Any]) -> FollowedFolder:
    ignore, contexts = settings.get("ignore"), settings.get("context")
    return FollowedFolder(
        library=name,
        root=_text(settings.get("path")),
        pattern=_text(settings.get("pattern")) or "**/*.md",
        ignore=tuple(filter(None, map(_text, ignore))) if isinstance(ignore, list) else (),
        descriptions={_text(key).strip("/"): _text(text) for key, text in contexts.items()}
        if isinstance(contexts, Mapping)
        else {},
    )


def _embeddings(
    database: ForeignDatabase, vectors: Vec0Vectors, hash: str, text: str
) -> tuple[dict[str, bytes], str]:
    """The embeddings of a text's chunks, by their text, and the name of the model.

    A chunk reaches to the next one or further; only a text of one chunk can be told for certain.
    """
    if not vectors.dimension or not database.has("content_vectors", "hash", "seq", "pos", "model"):
        return {}, ""
    chunks = sorted(
        (seq, pos, str(model))
        for seq, pos, model in database.lookup(
            "content_vectors", ("seq", "pos", "model"), "hash", [hash]
        )
        if isinstance(seq, int) and isinstance(pos, int)
    )
    if not chunks:
        return {}, ""
    ends = [pos for _, pos, _ in chunks[1:]] + [len(text)]
    found = {
        text[pos:end]: values
        for (seq, pos, _), end in zip(chunks, ends, strict=True)
        if (values := vectors.get(f"{hash}_{seq}"))
    }
    return found, chunks[0][2]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
