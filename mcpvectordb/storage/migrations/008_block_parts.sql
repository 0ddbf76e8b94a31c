-- What a part of a longer block is read between: the header of its table, or the fences of its code.
ALTER TABLE document_chunks ADD COLUMN header TEXT NOT NULL DEFAULT '';
ALTER TABLE document_chunks ADD COLUMN footer TEXT NOT NULL DEFAULT '';
ALTER TABLE context_chunks ADD COLUMN header TEXT NOT NULL DEFAULT '';
ALTER TABLE context_chunks ADD COLUMN footer TEXT NOT NULL DEFAULT '';
