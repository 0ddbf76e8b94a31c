-- Libraries that follow a folder. A library needs no row here to hold documents.

CREATE TABLE libraries (
    name TEXT PRIMARY KEY,
    root TEXT NOT NULL,
    inode TEXT NOT NULL, -- of the root as last seen: an empty folder with another one is a disk that is not mounted
    pattern TEXT NOT NULL,
    ignore TEXT NOT NULL, -- JSON list of patterns
    description TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What the parts of a library are about; path is relative to the root, without slashes at its ends.
CREATE TABLE library_notes (
    library TEXT NOT NULL REFERENCES libraries (name) ON DELETE CASCADE,
    path TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (library, path)
) STRICT, WITHOUT ROWID;

-- Files that were looked into in vain, so that they are not read again before they, or the program, change.
CREATE TABLE library_skipped (
    library TEXT NOT NULL REFERENCES libraries (name) ON DELETE CASCADE,
    path TEXT NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,
    version TEXT NOT NULL,
    PRIMARY KEY (library, path)
) STRICT, WITHOUT ROWID;

-- The file's modification time when its bytes were read; -1 where a later change might not show in it.
ALTER TABLE documents ADD COLUMN mtime_ns INTEGER NOT NULL DEFAULT -1;
