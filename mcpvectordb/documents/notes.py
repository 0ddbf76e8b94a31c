"""Notes on what was ingested: what is not found by meaning yet, and which model would suit it."""

from __future__ import annotations

import sys

from mcpvectordb.config import Config
from mcpvectordb.embedding import weights
from mcpvectordb.embedding.catalogue import CATALOGUE
from mcpvectordb.index import models
from mcpvectordb.index.provisional import ProvisionalEmbedder
from mcpvectordb.records import Document, Status, counted_passages
from mcpvectordb.storage.file import File
from mcpvectordb.text.stop_words import mostly_foreign

# The carrier of the first has no wheel for Windows.
MULTILINGUAL = "multilingual-e5-small" + ("-hub" if sys.platform == "win32" else "")
_FIRST = 20  # documents whose language decides
_SETTING = "multilingual_noted"


def joined(*notes: str) -> str:
    """Several notes as one; those that are "" are left out."""
    return "; ".join(filter(None, notes))


def not_embedded(
    status: Status, document: Document, pending: int, error: str, provisional: ProvisionalEmbedder
) -> str:
    """The note on a document of which some chunks are still pending."""
    if status == "skipped" and not error:
        return (
            f"already stored; {pending:,} of {counted_passages(document.chunks)} still wait for "
            "embedding"
        )
    return provisional.note(pending, error)


def other_languages(file: File, config: Config) -> str:
    """That a multilingual model exists, if a file's first documents need it; said once per file.

    It is "" in a file whose model knows more than English, and once it has 20 documents of which
    most are in English.
    """
    with file.reading(limited=False) as sql:
        model = models.active(sql)
        if model is None or not (model.name in CATALOGUE and CATALOGUE[model.name].latin_only):
            return ""
        if sql.execute("SELECT 1 FROM settings WHERE name = ?", (_SETTING,)).fetchone():
            return ""
        first = [
            text
            for (text,) in sql.execute(
                "SELECT tile FROM published_documents JOIN document_chunks "
                "ON owner = key AND position = 0 ORDER BY key LIMIT ?",
                (_FIRST,),
            )
        ]
    foreign = mostly_foreign(first)
    if not foreign and len(first) < _FIRST:
        return ""
    with file.writing() as sql:
        sql.execute(
            "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)",
            (_SETTING, "true" if foreign else "false"),
        )
    return _advice(model.name, config) if foreign else ""


def _advice(used: str, config: Config) -> str:
    better = CATALOGUE[MULTILINGUAL]
    install = (
        "" if weights.installed(better, config.models_folder()) else f"`{better.command}`, then "
    )
    return (
        f"most of it is not in English, the language of {used}; {MULTILINGUAL} has a hundred "
        f"languages: run {install}`mcpvectordb model use {MULTILINGUAL}`"
    )
