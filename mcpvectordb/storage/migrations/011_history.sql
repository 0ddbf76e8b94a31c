-- What was before, so that a change can be looked up and undone, and copies of a file can be merged.

-- One row: the last stamp of the file's clock, whether versions are kept (1) or not (0), how many bytes they take, and
-- the stamp up to which they were dropped.
CREATE TABLE history_state (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    clock INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    dropped INTEGER NOT NULL
) STRICT;

-- One row for each transaction that changed something; those of one call have the same (random) change.
CREATE TABLE history_changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    change INTEGER NOT NULL,
    stamp INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL
) STRICT;
CREATE INDEX history_changes_by_stamp ON history_changes (stamp);
CREATE INDEX history_changes_by_change ON history_changes (change);

-- Versions that were replaced or deleted at the stamp `until`; one without fields says that the item was deleted at its
-- stamp. An item is a shelf and three texts: library, source and twin; store, id and namespace; a context's uid.
CREATE TABLE history_versions (
    number INTEGER PRIMARY KEY,
    shelf TEXT NOT NULL,
    place TEXT NOT NULL,
    name TEXT NOT NULL,
    twin TEXT NOT NULL,
    stamp INTEGER NOT NULL,
    until INTEGER NOT NULL,
    digest BLOB NOT NULL,
    fields TEXT, -- JSON
    body BLOB, -- the name of a row of history_bodies, or the key of a stored document whose text it has
    UNIQUE (shelf, place, name, twin, stamp, digest)
) STRICT;
CREATE INDEX history_versions_by_until ON history_versions (until);
CREATE INDEX history_versions_by_stamp ON history_versions (stamp);
CREATE INDEX history_versions_by_body ON history_versions (body) WHERE body IS NOT NULL;

CREATE TABLE history_bodies (
    number INTEGER PRIMARY KEY,
    name BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
) STRICT;

-- When each item was changed last, by the clock of history. A twin is a document beside another one of its source; uid
-- is a context's name in all copies of the file, so an old file's must be the same in each of them.
ALTER TABLE documents ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
ALTER TABLE documents ADD COLUMN twin TEXT NOT NULL DEFAULT '';
ALTER TABLE contexts ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
ALTER TABLE contexts ADD COLUMN uid TEXT NOT NULL DEFAULT '';
ALTER TABLE vectors ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stores ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;
ALTER TABLE libraries ADD COLUMN stamp INTEGER NOT NULL DEFAULT 0;

UPDATE documents SET
    stamp = coalesce(CAST((julianday(created_at) - 2440587.5) * 86400000 AS INTEGER) << 20, 0),
    twin = CASE WHEN key > (SELECT min(o.key) FROM published_documents o
        WHERE o.library = documents.library AND o.source = documents.source) THEN id ELSE '' END;
UPDATE contexts SET
    stamp = coalesce(CAST((julianday(updated_at) - 2440587.5) * 86400000 AS INTEGER) << 20, 0),
    uid = id || ' ' || created_at;
UPDATE libraries SET
    stamp = coalesce(CAST((julianday(created_at) - 2440587.5) * 86400000 AS INTEGER) << 20, 0);
CREATE UNIQUE INDEX contexts_by_uid ON contexts (uid);

INSERT INTO history_state (only, clock, kept, bytes, dropped)
SELECT 1, clock, 1, 0, CASE WHEN clock OR EXISTS (SELECT 1 FROM vectors)
    THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) << 20 ELSE 0 END
FROM (SELECT max(
    (SELECT coalesce(max(stamp), 0) FROM documents),
    (SELECT coalesce(max(stamp), 0) FROM contexts),
    (SELECT coalesce(max(stamp), 0) FROM libraries)) AS clock);
