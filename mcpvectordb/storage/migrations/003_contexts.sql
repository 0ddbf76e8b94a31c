-- What agents and their users said, in threads. A context's text is the tiles of its chunks, and hash the text's SHA-256.
-- folded is a JSON object with the values of the indexed metadata keys, their case folded; NULL when there are none.
-- Each of these keys has an index context_key_<key>, made when the first context comes in (connection.key_index).
CREATE TABLE contexts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    thread TEXT NOT NULL,
    source TEXT NOT NULL CHECK (source IN ('user', 'agent')),
    hash BLOB NOT NULL,
    metadata TEXT,
    folded TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
CREATE INDEX contexts_by_thread ON contexts (thread); -- for the newest id of a thread: clocks can go back
CREATE INDEX contexts_by_thread_and_time ON contexts (thread, created_at);
CREATE INDEX contexts_by_source ON contexts (source, created_at);
CREATE INDEX contexts_by_time ON contexts (created_at);

CREATE TABLE context_tags (
    context INTEGER NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    tag TEXT NOT NULL,
    PRIMARY KEY (context, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX context_tags_by_tag ON context_tags (tag);

CREATE TABLE context_images (
    context INTEGER NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    mime_type TEXT NOT NULL,
    metadata TEXT,
    data BLOB NOT NULL,
    PRIMARY KEY (context, position)
) STRICT;

-- As the tables of documents, except that words are not kept chunk by chunk.
CREATE TABLE context_chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner INTEGER NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
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
CREATE INDEX context_chunks_by_hash ON context_chunks (hash);

CREATE TABLE context_embeddings (
    chunk INTEGER NOT NULL REFERENCES context_chunks (id) ON DELETE CASCADE,
    model INTEGER NOT NULL REFERENCES models (key),
    embedding BLOB NOT NULL,
    UNIQUE (chunk, model)
) STRICT;

CREATE TABLE context_pending (
    model INTEGER NOT NULL REFERENCES models (key),
    chunk INTEGER NOT NULL REFERENCES context_chunks (id) ON DELETE CASCADE,
    leased REAL NOT NULL,
    PRIMARY KEY (model, chunk)
) STRICT, WITHOUT ROWID;
CREATE INDEX context_pending_by_chunk ON context_pending (chunk);

-- The words of whole contexts, so that AND and NOT speak of a context and not of a part of it: once by their stems, and
-- once as they are spelled, for beginnings of words and for languages that Porter's stemmer does not know.
CREATE VIRTUAL TABLE context_words USING fts5 (
    text,
    content='', contentless_delete=1,
    tokenize='porter unicode61 remove_diacritics 2'
);
CREATE VIRTUAL TABLE context_spellings USING fts5 (
    text,
    content='', contentless_delete=1,
    tokenize='unicode61 remove_diacritics 2'
);
