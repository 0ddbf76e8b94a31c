-- The ids that a document had before its source changed and it was replaced: whoever kept one finds the new version by it.
-- Only the newest of each document are kept.
CREATE TABLE former_ids (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    document INTEGER NOT NULL REFERENCES documents (key) ON DELETE CASCADE
) STRICT;
CREATE INDEX former_ids_by_document ON former_ids (document);
