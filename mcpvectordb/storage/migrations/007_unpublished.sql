-- Documents that no reader sees: those that are written in several transactions, until the last one, and those whose
-- rows are still being removed. A process writes one until the time `leased`; any writer may remove the others.
CREATE TABLE unpublished_documents (
    document INTEGER PRIMARY KEY REFERENCES documents (key) ON DELETE CASCADE,
    process TEXT NOT NULL,
    leased REAL NOT NULL
) STRICT;

CREATE VIEW published_documents AS
SELECT * FROM documents WHERE key NOT IN (SELECT document FROM unpublished_documents);

-- FTS5 would merge whole segments in the transaction that happens to delete one row too many; `clean` merges in steps.
INSERT INTO document_words (document_words, rank) VALUES ('deletemerge', 0);
