-- As in files: when what a context says holds, the uid of the context that replaced it, and its provenance. Contexts
-- that were published before are sent again when one of these is set, because their digests are others then.
ALTER TABLE contexts
    ADD COLUMN valid_from text COLLATE "C",
    ADD COLUMN valid_to text COLLATE "C",
    ADD COLUMN replaced_by text COLLATE "C",
    ADD COLUMN provenance text COLLATE "C" CHECK (provenance IN ('person', 'agent', 'document', 'web'));
CREATE INDEX contexts_by_valid_from ON contexts (valid_from) WHERE valid_from IS NOT NULL;
CREATE INDEX contexts_by_valid_to ON contexts (valid_to) WHERE valid_to IS NOT NULL;
CREATE INDEX contexts_by_uid ON contexts USING hash (uid);
