"""An Obsidian vault: a library that follows it. Its files are read by every sync alike.

Links, tags and aliases are read wherever a Markdown file lies in a vault
(`ingest.formats.markdown`), so they stay right when notes change.
"""

from __future__ import annotations

from collections.abc import Iterator

from mcpvectordb.errors import UnsupportedFormat
from mcpvectordb.importers.items import FollowedFolder, ImportOptions, Item
from mcpvectordb.importers.source import ImportSource
from mcpvectordb.ingest.globs import EVERYTHING
from mcpvectordb.ingest.sources import VAULT_FOLDER as FOLDER


def recognises(source: ImportSource) -> bool:
    """Whether it is a folder that Obsidian has opened as a vault."""
    return source.is_folder and (source.path / FOLDER).is_dir()


def read(source: ImportSource, options: ImportOptions) -> Iterator[Item]:
    """The folder, which the user has named; what is in it comes with its sync."""
    if not recognises(source):
        raise UnsupportedFormat(
            f"{source.path} is no vault: it has no folder {FOLDER}. Any folder of notes is "
            "followed by `mcpvectordb library add NAME FOLDER`"
        )
    root = source.path.resolve()
    yield FollowedFolder(
        library=options.library or root.name,
        root=str(root),
        pattern=EVERYTHING,
        confirmed=True,
    )
