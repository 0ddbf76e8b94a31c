-- The memories before and after one in its thread. A B-tree has no room for the longest names.
CREATE INDEX contexts_in_order ON contexts (origin, substr(thread, 1, 100), created_at, id);
