-- What people said of a document, apart from what its source says of itself, so that a changed source keeps it:
-- {"title": "…", "metadata": {"year": [2024], "draft": []}}, where [] stands for a key that was taken out. NULL: not
-- known, because the document was stored before there was this column.
ALTER TABLE documents ADD COLUMN given TEXT;

-- Listings are ordered by it: a document that is written again keeps its time, but gets a new key.
CREATE INDEX documents_by_time ON documents (created_at);
