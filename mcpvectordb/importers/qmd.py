"""The index of qmd: its collections as libraries that follow their folders, and their documents.

Newer versions keep the collections in the table store_collections, older ones in a YAML file: in
the folder of the index, or in ~/.config/qmd beside ~/.cache/qmd, where the index usually is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from mcpvectordb.importers import values
from mcpvectordb.importers.foreign_database import ForeignDatabase
from mcpvectordb.importers.items import (
    Expected,
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


class CollectionSettings(NamedTuple):
    """A collection; `contexts` are descriptions by their path in it."""

    name: str
    path: str
    pattern: str
    ignore: tuple[str, ...]
    contexts: Mapping[str, str]
    update_command: str


def recognises(source: ImportSource) -> bool:
    """Whether it has qmd's tables."""
    return (
        source.database is not None
        and source.database.has("content", "hash", "doc")
        and source.database.has("documents", "collection", "path", "hash", "active")
    )


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """The collections, then the documents, whose sources are the paths of their files."""
    database = source.sqlite(recognises(source), "the index of qmd")
    collections = {each.name: each for each in _collections(source.path, database)}
    yield Expected(items=database.count("documents") + len(collections))
    for each in collections.values():
        if not options.library:
            yield _followed(each)
        if each.update_command:
            yield NotKept(what="the update command of a collection")
    vectors = Vec0Vectors(database, "vectors_vec")
    for collection, path, hash, modified, active in database.rows(
        "documents", "collection", "path", "hash", "modified_at", "active"
    ):
        place = _place(collections.get(str(collection)), str(collection), str(path))
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


def _place(collection: CollectionSettings | None, name: str, path: str) -> str:
    """The path of a document's file, if its collection is known, or its address in qmd."""
    if collection is None or not collection.path:
        return f"qmd://{name}/{path}"
    return str(Path(collection.path, *PurePosixPath(path).parts))


def _followed(collection: CollectionSettings) -> FollowedFolder:
    return FollowedFolder(
        library=collection.name,
        root=collection.path,
        pattern=collection.pattern,
        ignore=collection.ignore,
        descriptions=collection.contexts,
    )


def _collections(path: Path, database: ForeignDatabase) -> Iterator[CollectionSettings]:
    rows = list(
        database.rows(
            "store_collections", "name", "path", "pattern", "ignore_patterns", "context",
            "update_command",
        )
    )  # fmt: skip
    for name, folder, pattern, ignore, context, command in rows:
        yield _collection(
            str(name),
            {
                "path": folder,
                "pattern": pattern,
                "ignore": values.json_value(ignore),
                "context": values.json_value(context),
                "update": command,
            },
        )
    if not rows:
        for name, settings in _configured(path).items():
            if isinstance(settings, Mapping):
                yield _collection(str(name), settings)


def _collection(name: str, settings: Mapping[str, Any]) -> CollectionSettings:
    ignore, contexts = settings.get("ignore"), settings.get("context")
    return CollectionSettings(
        name=name,
        path=_text(settings.get("path")),
        pattern=_text(settings.get("pattern")) or "**/*.md",
        ignore=tuple(filter(None, map(_text, ignore))) if isinstance(ignore, list) else (),
        contexts={_text(key).strip("/"): _text(text) for key, text in contexts.items()}
        if isinstance(contexts, Mapping)
        else {},
        update_command=_text(settings.get("update")),
    )


def settings_files(path: Path) -> list[Path]:
    """Where the YAML file that belongs to an index may be."""
    name = f"{path.stem}.yml"
    home = list(path.parents)[2:3]
    return [path.with_name(name), *(each / ".config" / "qmd" / name for each in home)]


def _configured(path: Path) -> Mapping[str, Any]:
    """The collections of the YAML file that belongs to an index; empty if there is none."""
    import yaml

    for file in settings_files(path):
        if file.is_file() and file.stat().st_size <= LONGEST_YAML:
            try:
                found = yaml.safe_load(file.read_text("utf-8"))
            except (OSError, ValueError, yaml.YAMLError, RecursionError):
                continue
            if isinstance(found, Mapping) and isinstance(found.get("collections"), Mapping):
                collections: Mapping[str, Any] = found["collections"]
                return collections
    return {}


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
