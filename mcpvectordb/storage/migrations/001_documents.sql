-- Ordinary tables are the truth; document_words (FTS5) and the vec0 tables are indexes that can be made again.

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The models that embeddings in this file were made with. One is active (settings.model); another may be on its way in.
CREATE TABLE models (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    dimension INTEGER NOT NULL
) STRICT;

CREATE TABLE documents (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    library TEXT NOT NULL,
    source TEXT NOT NULL,
    title TEXT NOT NULL,
    hash TEXT NOT NULL,
    file_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    modified TEXT NOT NULL,
    etag TEXT NOT NULL,
    created_at TEXT NOT NULL,
    metadata TEXT NOT NULL
) STRICT;
CREATE INDEX documents_by_source ON documents (library, source);
CREATE INDEX documents_by_hash ON documents (hash);

-- A chunk owns one tile of its owner's text; the tiles in order are the text. Its own text runs from start to "end"
-- and may reach back into the tile before (overlap).
CREATE TABLE document_chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    tile TEXT NOT NULL,
    tile_start INTEGER NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    first_line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    page INTEGER,
    headings TEXT NOT NULL,
    hash BLOB NOT NULL,
    UNIQUE (owner, position)
) STRICT;
CREATE INDEX document_chunks_by_hash ON document_chunks (hash);

CREATE TABLE document_embeddings (
    chunk INTEGER NOT NULL REFERENCES document_chunks (id) ON DELETE CASCADE,
    model INTEGER NOT NULL REFERENCES models (key),
    embedding BLOB NOT NULL,
    UNIQUE (chunk, model)
) STRICT;

-- Chunks that wait for their embedding; leased is the time until which a process works on one.
CREATE TABLE document_pending (
    model INTEGER NOT NULL REFERENCES models (key),
    chunk INTEGER NOT NULL REFERENCES document_chunks (id) ON DELETE CASCADE,
    leased REAL NOT NULL,
    PRIMARY KEY (model, chunk)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_pending_by_chunk ON document_pending (chunk);

CREATE VIRTUAL TABLE document_words USING fts5 (
    title, headings, text,
    content='', contentless_delete=1,
    tokenize='porter unicode61 remove_diacritics 2'
);
