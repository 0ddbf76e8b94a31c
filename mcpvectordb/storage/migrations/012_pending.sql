-- Chunks that wait, in one order instead of two: by chunk, for the newest first and for those that are deleted.
-- From this version on a shelf of few chunks has no vec0 table.
CREATE TABLE document_waiting (
    chunk INTEGER NOT NULL REFERENCES document_chunks (id) ON DELETE CASCADE,
    model INTEGER NOT NULL REFERENCES models (key),
    leased REAL NOT NULL,
    PRIMARY KEY (chunk, model)
) STRICT, WITHOUT ROWID;
INSERT INTO document_waiting (chunk, model, leased) SELECT chunk, model, leased FROM document_pending;
DROP TABLE document_pending;
ALTER TABLE document_waiting RENAME TO document_pending;

CREATE TABLE context_waiting (
    chunk INTEGER NOT NULL REFERENCES context_chunks (id) ON DELETE CASCADE,
    model INTEGER NOT NULL REFERENCES models (key),
    leased REAL NOT NULL,
    PRIMARY KEY (chunk, model)
) STRICT, WITHOUT ROWID;
INSERT INTO context_waiting (chunk, model, leased) SELECT chunk, model, leased FROM context_pending;
DROP TABLE context_pending;
ALTER TABLE context_waiting RENAME TO context_pending;
