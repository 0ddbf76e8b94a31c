-- When what a context says holds: from valid_from (NULL: from created_at) to valid_to (NULL: on and on), both included.
-- replaced_by is the uid of the context that took its place. provenance is person, agent, document or web; NULL, as in
-- older files, is that of the source: person for a user, agent for an agent.
ALTER TABLE contexts ADD COLUMN valid_from TEXT;
ALTER TABLE contexts ADD COLUMN valid_to TEXT;
ALTER TABLE contexts ADD COLUMN replaced_by TEXT;
ALTER TABLE contexts ADD COLUMN provenance TEXT CHECK (provenance IN ('person', 'agent', 'document', 'web'));
CREATE INDEX contexts_by_valid_from ON contexts (valid_from) WHERE valid_from IS NOT NULL;
CREATE INDEX contexts_by_valid_to ON contexts (valid_to) WHERE valid_to IS NOT NULL;
