-- What files have published, in a schema of its own: tables are named as in the file, and every row belongs to an origin.
-- Keys and ids are those of the file plus the origin's key << 40, so they are known before a row is sent, never used
-- twice, and keep their order. Text compares by its bytes, as in SQLite (COLLATE "C"). U+0000, which PostgreSQL does
-- not store, is escaped (postgres/values.py). The checks keep a publisher from rows of others' items. Columns named *_digest say what was sent, so that only changes follow.

CREATE TABLE models (
    key integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    dimension integer NOT NULL,
    UNIQUE (name, digest, dimension)
);

CREATE SEQUENCE origin_keys AS integer MINVALUE 0 START 0;

-- file is the name that the file gave itself; publisher changes with every publisher that begins, so one that was cut
-- off and goes on notices. model is the one that embeds the origin's passages; libraries NULL means everything.
-- published_at is NULL as long as a publish is not finished.
CREATE TABLE origins (
    key integer PRIMARY KEY DEFAULT nextval('origin_keys'),
    name text COLLATE "C" NOT NULL UNIQUE,
    file text COLLATE "C" NOT NULL DEFAULT '',
    publisher uuid,
    model integer REFERENCES models (key),
    libraries text[],
    published_at timestamptz
);

-- What BM25 needs of all items of an origin together: how many there are and how many tokens they have.
CREATE TABLE totals (
    origin integer NOT NULL REFERENCES origins (key) ON DELETE CASCADE,
    shelf text COLLATE "C" NOT NULL CHECK (shelf IN ('document', 'context')),
    items bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (origin, shelf)
);

CREATE TABLE libraries (
    origin integer NOT NULL REFERENCES origins (key) ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    root text COLLATE "C" NOT NULL,
    pattern text COLLATE "C" NOT NULL,
    ignore text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL,
    created_at text COLLATE "C" NOT NULL,
    PRIMARY KEY (origin, name)
);

CREATE TABLE library_notes (
    origin integer NOT NULL,
    library text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    text text COLLATE "C" NOT NULL,
    FOREIGN KEY (origin, library) REFERENCES libraries (origin, name) ON DELETE CASCADE
);
CREATE INDEX library_notes_by_library ON library_notes (origin, library);

-- Names may be longer than a B-tree takes (2,704 bytes), hence hash indexes. metadata is the file's JSON, fields the
-- same to filter by. root is that of the library.
CREATE TABLE documents (
    key bigint PRIMARY KEY,
    origin integer NOT NULL REFERENCES origins (key) ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    library text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    title text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL,
    file_type text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    modified text COLLATE "C" NOT NULL,
    created_at text COLLATE "C" NOT NULL,
    metadata text COLLATE "C" NOT NULL,
    fields json NOT NULL,
    path text COLLATE "C" NOT NULL,
    chunks integer NOT NULL,
    row_digest bytea NOT NULL,
    chunks_digest bytea NOT NULL,
    embeddings_digest bytea NOT NULL,
    CHECK (key >> 40 = origin)
);
CREATE INDEX documents_by_library ON documents (origin, library);
CREATE INDEX documents_by_time ON documents (created_at);
CREATE INDEX documents_by_id ON documents USING hash (id);
CREATE INDEX documents_by_source ON documents USING hash (source);

CREATE TABLE former_ids (
    origin integer NOT NULL,
    document bigint NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
    number bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    CHECK (document >> 40 = origin)
);
CREATE INDEX former_ids_by_document ON former_ids (document);
CREATE INDEX former_ids_by_id ON former_ids USING hash (id);

-- words are the tokens of title, headings and text, each with a space before and after it, the three parts separated
-- by a line feed: " tea \n green \n brew tea ". A phrase of them is a part of this text. tokens is their number.
CREATE TABLE document_chunks (
    id bigint PRIMARY KEY,
    owner bigint NOT NULL REFERENCES documents (key) ON DELETE CASCADE,
    origin integer NOT NULL,
    position integer NOT NULL,
    tile_start integer NOT NULL,
    start integer NOT NULL,
    "end" integer NOT NULL,
    first_line integer NOT NULL,
    last_line integer NOT NULL,
    page integer,
    tokens integer NOT NULL,
    tile text COLLATE "C" NOT NULL,
    headings text COLLATE "C" NOT NULL,
    header text COLLATE "C" NOT NULL,
    footer text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    words text COLLATE "C" NOT NULL,
    UNIQUE (owner, position),
    CHECK (id >> 40 = origin AND owner >> 40 = origin)
);

-- The postings, made of words by triggers, and how many items have each term. An occurrence in the title counts twice.
-- tokens, the length of the item, is repeated: so the index alone has all that a score needs.
CREATE TABLE document_words (
    item bigint NOT NULL,
    origin integer NOT NULL,
    weight integer NOT NULL,
    tokens integer NOT NULL,
    term text COLLATE "C" NOT NULL,
    PRIMARY KEY (term, origin, item) INCLUDE (weight, tokens)
);
CREATE TABLE document_terms (
    term text COLLATE "C" NOT NULL,
    origin integer NOT NULL,
    items integer NOT NULL,
    PRIMARY KEY (term, origin)
) WITH (fillfactor = 70);

-- The rows stay in one piece up to about 2,000 dimensions.
CREATE TABLE document_embeddings (
    chunk bigint NOT NULL,
    model integer NOT NULL REFERENCES models (key),
    origin integer NOT NULL,
    embedding vector NOT NULL,
    PRIMARY KEY (chunk, model),
    CHECK (chunk >> 40 = origin)
) WITH (toast_tuple_target = 8160);
CREATE INDEX document_embeddings_by_origin ON document_embeddings (model, origin);

-- words are the stems of the whole text, spellings the same without stemming; tokens is the number of either.
CREATE TABLE contexts (
    id bigint PRIMARY KEY,
    origin integer NOT NULL REFERENCES origins (key) ON DELETE CASCADE,
    thread text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    metadata text COLLATE "C",
    fields json,
    created_at text COLLATE "C" NOT NULL,
    updated_at text COLLATE "C" NOT NULL,
    uid text COLLATE "C" NOT NULL,
    tokens integer NOT NULL,
    words text COLLATE "C" NOT NULL,
    spellings text COLLATE "C" NOT NULL,
    row_digest bytea NOT NULL,
    embeddings_digest bytea NOT NULL,
    CHECK (id >> 40 = origin)
);
CREATE INDEX contexts_by_origin ON contexts (origin, created_at);
CREATE INDEX contexts_by_time ON contexts (created_at);
CREATE INDEX contexts_by_thread ON contexts USING hash (thread);

CREATE TABLE context_tags (
    context bigint NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    origin integer NOT NULL,
    tag text COLLATE "C" NOT NULL,
    CHECK (context >> 40 = origin)
);
CREATE INDEX context_tags_by_context ON context_tags (context);
CREATE INDEX context_tags_by_tag ON context_tags USING hash (tag);

CREATE TABLE context_images (
    context bigint NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    origin integer NOT NULL,
    position integer NOT NULL,
    mime_type text COLLATE "C" NOT NULL,
    metadata text COLLATE "C",
    data bytea NOT NULL,
    PRIMARY KEY (context, position),
    CHECK (context >> 40 = origin)
);

CREATE TABLE context_chunks (
    id bigint PRIMARY KEY,
    owner bigint NOT NULL REFERENCES contexts (id) ON DELETE CASCADE,
    origin integer NOT NULL,
    position integer NOT NULL,
    tile_start integer NOT NULL,
    start integer NOT NULL,
    "end" integer NOT NULL,
    first_line integer NOT NULL,
    last_line integer NOT NULL,
    page integer,
    tile text COLLATE "C" NOT NULL,
    headings text COLLATE "C" NOT NULL,
    header text COLLATE "C" NOT NULL,
    footer text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    UNIQUE (owner, position),
    CHECK (id >> 40 = origin AND owner >> 40 = origin)
);

CREATE TABLE context_words (LIKE document_words INCLUDING INDEXES);
CREATE TABLE context_terms (LIKE document_terms INCLUDING INDEXES) WITH (fillfactor = 70);
CREATE TABLE context_spellings (LIKE document_words INCLUDING INDEXES);
CREATE TABLE context_spelling_terms (LIKE document_terms INCLUDING INDEXES) WITH (fillfactor = 70);

CREATE TABLE context_embeddings (
    chunk bigint NOT NULL,
    model integer NOT NULL REFERENCES models (key),
    origin integer NOT NULL,
    embedding vector NOT NULL,
    PRIMARY KEY (chunk, model),
    CHECK (chunk >> 40 = origin)
) WITH (toast_tuple_target = 8160);
CREATE INDEX context_embeddings_by_origin ON context_embeddings (model, origin);

CREATE TABLE stores (
    key bigint PRIMARY KEY,
    origin integer NOT NULL REFERENCES origins (key) ON DELETE CASCADE,
    name text COLLATE "C" NOT NULL,
    metric text COLLATE "C" NOT NULL,
    UNIQUE (origin, name),
    CHECK (key >> 40 = origin)
);

CREATE TABLE vectors (
    key bigint PRIMARY KEY,
    origin integer NOT NULL,
    store bigint NOT NULL REFERENCES stores (key) ON DELETE CASCADE,
    dimension integer NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    metadata text COLLATE "C" NOT NULL,
    fields json NOT NULL,
    row_digest bytea NOT NULL,
    CHECK (key >> 40 = origin AND store >> 40 = origin)
);
CREATE INDEX vectors_by_store ON vectors (store, dimension, namespace);
CREATE INDEX vectors_by_id ON vectors USING hash (id);

-- embedding is NULL where it has more than 16,000 numbers or some that float32 has no room for. raw are the numbers as
-- they are in the file, little-endian float32 or float64; NULL where embedding has all of them exactly.
CREATE TABLE vector_embeddings (
    vector bigint PRIMARY KEY REFERENCES vectors (key) ON DELETE CASCADE,
    origin integer NOT NULL,
    store bigint NOT NULL,
    dimension integer NOT NULL,
    embedding vector,
    raw bytea,
    CHECK (embedding IS NOT NULL OR raw IS NOT NULL),
    CHECK (vector >> 40 = origin AND store >> 40 = origin)
) WITH (toast_tuple_target = 8160);
CREATE INDEX vector_embeddings_by_store ON vector_embeddings (store, dimension);
