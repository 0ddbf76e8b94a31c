-- What took long to find out, so that the same question is answered at once the next time. Never the truth and never
-- needed: rows may go at any time, and the oldest do.
CREATE TABLE cache (
    seq INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE, -- a digest of everything that the value depends on
    value TEXT NOT NULL -- JSON
) STRICT;
