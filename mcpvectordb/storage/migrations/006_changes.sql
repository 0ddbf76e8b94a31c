-- Which rows of a vec0 table changed lately, so that what a process keeps of it in memory can follow; id 0 means all.
-- Only the newest rows are kept: a process that was away for longer reads the whole table again.
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    codes TEXT NOT NULL,
    id INTEGER NOT NULL
) STRICT;
