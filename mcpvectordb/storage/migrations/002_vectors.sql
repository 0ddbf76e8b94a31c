-- Embeddings that users bring along. A store is made by the first vector put into it and keeps its metric.
CREATE TABLE stores (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    metric TEXT NOT NULL
) STRICT;

-- A vector that is written again keeps its key: the keys are the order in which equal scores are ranked.
-- A part is what can be ranked together, the vectors of one dimension in one store; large ones of cosine stores have
-- a vec0 table vector_meaning_<part>.
CREATE TABLE vectors (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    store INTEGER NOT NULL REFERENCES stores (key),
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    part INTEGER NOT NULL AS (store * 100000 + dimension) STORED,
    UNIQUE (store, namespace, id)
) STRICT;
CREATE INDEX vectors_by_part ON vectors (part);

-- Beside the vectors and not in them, so that filters do not page through the numbers. 4 bytes a number where float32
-- holds them all exactly, otherwise 8.
CREATE TABLE vector_embeddings (
    vector INTEGER PRIMARY KEY REFERENCES vectors (key) ON DELETE CASCADE,
    embedding BLOB NOT NULL
) STRICT;

CREATE VIEW vector_values AS
SELECT v.key, v.part, e.embedding FROM vectors v JOIN vector_embeddings e ON e.vector = v.key;
