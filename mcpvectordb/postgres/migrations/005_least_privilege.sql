-- Least privilege. What PUBLIC has is revoked, and roles get rights by name, after every migration (postgres/rights.py).
-- Here: row-level security without functions of the owner, so that nobody can ask for another role; functions of the
-- owner (SECURITY DEFINER) only where a publisher must cause what it may not do itself, with a fixed search path, names
-- of the schema written out, and no argument that becomes SQL; and constraints on what readers take for granted.
-- Postings and statistics stay such a case: everybody's BM25 is computed from them, and a publisher who could write
-- them could let them contradict its passages, which no policy can notice.

-- Who sees what: a role sees its own grants, by these the origins, and by these all other rows. The functions have the
-- rights of whoever asks, and keep their plans: as subqueries of every policy they would be planned for every table.
CREATE FUNCTION readable_origins() RETURNS integer[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(SELECT o.key FROM mcpvectordb.origins o);
END $$;
CREATE FUNCTION writable_origins() RETURNS integer[]
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ARRAY(
        SELECT o.key FROM mcpvectordb.origins o JOIN mcpvectordb.grants g
        ON g.publishes AND (g.origin IS NULL OR g.origin = o.key)
    );
END $$;
DO $$
DECLARE
    found record;
    readable CONSTANT text := 'ANY ((SELECT mcpvectordb.readable_origins())::integer[])';
    writable CONSTANT text := 'ANY ((SELECT mcpvectordb.writable_origins())::integer[])';
BEGIN
    FOR found IN SELECT tablename, policyname, cmd FROM pg_catalog.pg_policies WHERE schemaname = 'mcpvectordb' LOOP
        EXECUTE format('DROP POLICY %I ON mcpvectordb.%I', found.policyname, found.tablename);
        IF found.tablename <> 'origins' THEN
            EXECUTE 'CREATE POLICY ' || quote_ident(found.policyname) || ' ON mcpvectordb.'
                || quote_ident(found.tablename) || ' FOR ' || found.cmd
                || CASE found.cmd WHEN 'INSERT' THEN ' WITH CHECK (origin = ' ELSE ' USING (origin = ' END
                || CASE found.cmd WHEN 'SELECT' THEN readable ELSE writable END || ')';
        END IF;
    END LOOP;
END $$;
DROP FUNCTION granted_origins(name, boolean);
DROP FUNCTION publishes_anything(name);

ALTER TABLE grants ENABLE ROW LEVEL SECURITY;
CREATE POLICY reading ON grants FOR SELECT USING (EXISTS (
    SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = role AND pg_catalog.pg_has_role(r.oid, 'USAGE')
));
CREATE POLICY reading ON origins FOR SELECT USING (
    (SELECT bool_or(g.origin IS NULL) FROM mcpvectordb.grants g)
    OR key = ANY (ARRAY(SELECT g.origin FROM mcpvectordb.grants g))
);
CREATE POLICY adding ON origins FOR INSERT WITH CHECK (
    EXISTS (SELECT FROM mcpvectordb.grants g WHERE g.publishes AND g.origin IS NULL)
);
CREATE POLICY changing ON origins FOR UPDATE USING (
    (SELECT bool_or(g.origin IS NULL) FROM mcpvectordb.grants g WHERE g.publishes)
    OR key = ANY (ARRAY(SELECT g.origin FROM mcpvectordb.grants g WHERE g.publishes))
);
ALTER TABLE models ENABLE ROW LEVEL SECURITY;
CREATE POLICY reading ON models FOR SELECT USING (key = ANY (ARRAY(SELECT o.model FROM mcpvectordb.origins o)));

ALTER VIEW unpublished_documents SET (security_invoker = true);
ALTER VIEW document_pending SET (security_invoker = true);
ALTER VIEW context_pending SET (security_invoker = true);
ALTER VIEW library_skipped SET (security_invoker = true);

-- The functions of the owner.

CREATE OR REPLACE FUNCTION add_totals() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO mcpvectordb.totals (origin, shelf) VALUES (NEW.key, 'document'), (NEW.key, 'context');
    RETURN NULL;
END $$;

DROP TRIGGER a_postings ON document_chunks;
DROP TRIGGER a_postings ON contexts;
DROP TRIGGER a_spellings ON contexts;

-- Arguments: shelf, table of postings, table of terms, and the columns of a new row whose words become postings;
-- the first part of the words counts twice if the rows have titles.
CREATE OR REPLACE FUNCTION add_postings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET work_mem = '64MB' AS $$
DECLARE
    terms text[];
    origins integer[];
    counts bigint[];
BEGIN
    EXECUTE format($sql$
        WITH made AS (
            INSERT INTO mcpvectordb.%1$I (term, origin, item, weight, tokens)
            SELECT term, origin, id, count(*), tokens FROM (
                SELECT id, origin, tokens, unnest(string_to_array(
                    %2$I || CASE WHEN $1 THEN split_part(%2$I, E'\n', 1) ELSE '' END, ' '
                )) AS term FROM added
            ) AS each WHERE term NOT IN ('', E'\n')
            GROUP BY id, origin, tokens, term ORDER BY term, origin, id
            RETURNING term, origin
        ), counted AS (
            SELECT term, origin, count(*) AS items FROM made GROUP BY term, origin
        )
        SELECT array_agg(term), array_agg(origin), array_agg(items) FROM counted
    $sql$, TG_ARGV[1], TG_ARGV[3]) INTO terms, origins, counts USING TG_ARGV[4] = 'titled';
    PERFORM 1 FROM mcpvectordb.totals t WHERE t.shelf = TG_ARGV[0] AND t.origin IN (SELECT origin FROM added)
        ORDER BY t.origin FOR UPDATE;
    EXECUTE format($sql$
        INSERT INTO mcpvectordb.%1$I AS known (term, origin, items)
        SELECT * FROM unnest($1, $2, $3)
        ON CONFLICT (term, origin) DO UPDATE SET items = known.items + excluded.items
    $sql$, TG_ARGV[2]) USING terms, origins, counts;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION remove_postings() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET work_mem = '64MB'
-- Whatever the planner thinks: each posting is looked up, no table is read as a whole.
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM removed) THEN
        RETURN NULL; -- a document without passages
    END IF;
    PERFORM 1 FROM mcpvectordb.totals t WHERE t.shelf = TG_ARGV[0] AND t.origin IN (SELECT origin FROM removed)
        ORDER BY t.origin FOR UPDATE;
    EXECUTE format($sql$
        WITH named AS MATERIALIZED (
            SELECT DISTINCT unnest(string_to_array(%3$I, ' ')) AS term, origin, id FROM removed
        ), gone AS (
            DELETE FROM mcpvectordb.%1$I w USING named n
            WHERE w.term = n.term AND w.origin = n.origin AND w.item = n.id
            RETURNING w.term, w.origin
        ), counted AS (
            SELECT term, origin, count(*) AS items FROM gone GROUP BY term, origin
        ), rarer AS (
            UPDATE mcpvectordb.%2$I t SET items = t.items - c.items FROM counted c
            WHERE t.term = c.term AND t.origin = c.origin AND t.items > c.items
        )
        DELETE FROM mcpvectordb.%2$I t USING counted c
        WHERE t.term = c.term AND t.origin = c.origin AND t.items <= c.items
    $sql$, TG_ARGV[1], TG_ARGV[2], TG_ARGV[3]);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_added() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE mcpvectordb.totals t SET items = t.items + n.items, tokens = t.tokens + n.tokens
    FROM (SELECT origin, count(*) AS items, sum(tokens) AS tokens FROM added GROUP BY origin) AS n
    WHERE t.origin = n.origin AND t.shelf = TG_ARGV[0];
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION count_removed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE mcpvectordb.totals t SET items = t.items - n.items, tokens = t.tokens - n.tokens
    FROM (SELECT origin, count(*) AS items, sum(tokens) AS tokens FROM removed GROUP BY origin) AS n
    WHERE t.origin = n.origin AND t.shelf = TG_ARGV[0];
    RETURN NULL;
END $$;

CREATE TRIGGER a_postings AFTER INSERT ON document_chunks REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_postings('document', 'document_words', 'document_terms', 'words', 'titled');
CREATE TRIGGER a_postings AFTER INSERT ON contexts REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_postings('context', 'context_words', 'context_terms', 'words', 'untitled');
CREATE TRIGGER a_spellings AFTER INSERT ON contexts REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_postings('context', 'context_spellings', 'context_spelling_terms', 'spellings', 'untitled');

-- The number of a model, which is made if it is new. Publishers call it: they see the models of their origins alone.
CREATE FUNCTION model_key(model_name text, model_digest text, model_dimension integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO mcpvectordb.models (name, digest, dimension) VALUES (model_name, model_digest, model_dimension)
    ON CONFLICT DO NOTHING;
    RETURN (
        SELECT m.key FROM mcpvectordb.models m
        WHERE m.name = model_name AND m.digest = model_digest AND m.dimension = model_dimension
    );
END $$;

-- What was a function of its own, with a condition as text, is a part of this one.
DROP FUNCTION make_graph(text, text, integer, text);
CREATE OR REPLACE FUNCTION make_graphs(at_least bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET maintenance_work_mem = '1GB' AS $$
DECLARE
    pgvector CONSTANT name := (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'vector');
    all_due jsonb[];
    due jsonb;
    made integer := 0;
BEGIN
    -- Collected first: a table that is being read gets no index.
    SELECT array_agg(to_jsonb(d)) INTO all_due FROM (
        SELECT 'document_embeddings_graph_' || m.key AS name, 'document_embeddings' AS indexed, m.dimension,
            format('model = %L', m.key) AS condition
        FROM mcpvectordb.models m
        WHERE (SELECT count(*) FROM mcpvectordb.document_embeddings e WHERE e.model = m.key) > at_least
        UNION ALL
        SELECT 'context_embeddings_graph_' || m.key, 'context_embeddings', m.dimension,
            format('model = %L', m.key)
        FROM mcpvectordb.models m
        WHERE (SELECT count(*) FROM mcpvectordb.context_embeddings e WHERE e.model = m.key) > at_least
        UNION ALL
        SELECT 'vector_embeddings_graph_' || e.store || '_' || e.dimension, 'vector_embeddings', e.dimension,
            format('store = %L AND dimension = %L', e.store, e.dimension)
        FROM mcpvectordb.vector_embeddings e
        JOIN mcpvectordb.stores s ON s.key = e.store AND s.metric = 'cosine'
        WHERE e.embedding IS NOT NULL
        GROUP BY e.store, e.dimension HAVING count(*) > at_least
    ) AS d;
    FOREACH due IN ARRAY coalesce(all_due, '{}') LOOP
        CONTINUE WHEN to_regclass('mcpvectordb.' || quote_ident(due ->> 'name')) IS NOT NULL;
        -- A graph of half floats takes up to 4,000 dimensions, one of sign bits any number.
        EXECUTE format('CREATE INDEX IF NOT EXISTS %I ON mcpvectordb.%I USING hnsw (', due ->> 'name', due ->> 'indexed')
            || CASE WHEN (due ->> 'dimension')::integer <= 4000
                THEN format(
                    '(%1$I.l2_normalize(embedding)::%1$I.halfvec(%2$L)) %1$I.halfvec_cosine_ops',
                    pgvector, due ->> 'dimension'
                )
                ELSE format(
                    '(%1$I.binary_quantize(embedding)::bit(%2$L)) %1$I.bit_hamming_ops',
                    pgvector, due ->> 'dimension'
                ) END
            || ') WITH (m = 16, ef_construction = 200) WHERE ' || (due ->> 'condition');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;

-- What a publisher sends must be what readers can read: one bad row would end the searches of all who may see it.
-- Rows from before get values that can be read, and no digest: the next publish of their file sends them again.

CREATE FUNCTION pg_temp.is_json(value text, kind text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN json_typeof(value::json) = kind;
EXCEPTION WHEN others THEN
    RETURN false;
END $$;
CREATE FUNCTION pg_temp.is_texts(value text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN json_typeof(value::json) = 'array'
        AND value ~ '^\[\s*("([^"\\]|\\.)*"\s*(,\s*"([^"\\]|\\.)*"\s*)*)?\]$';
EXCEPTION WHEN others THEN
    RETURN false;
END $$;
CREATE FUNCTION pg_temp.is_fields(value json) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN jsonb_typeof(value::jsonb) = 'object' AND NOT jsonb_path_exists(value::jsonb, 'strict $.**{33 to last}');
EXCEPTION WHEN others THEN
    RETURN false;
END $$;

UPDATE documents SET metadata = '{}', fields = '{}', row_digest = ''
WHERE NOT pg_temp.is_json(metadata, 'object') OR NOT pg_temp.is_fields(fields);
UPDATE contexts SET metadata = '{}', fields = '{}', row_digest = ''
WHERE NOT (metadata IS NULL AND fields IS NULL)
    AND NOT coalesce(pg_temp.is_json(metadata, 'object') AND pg_temp.is_fields(fields), false);
UPDATE vectors SET metadata = '{}', fields = '{}', row_digest = ''
WHERE NOT pg_temp.is_json(metadata, 'object') OR NOT pg_temp.is_fields(fields);
UPDATE context_images SET metadata = '{}'
WHERE metadata IS NOT NULL AND NOT pg_temp.is_json(metadata, 'object');
UPDATE libraries SET ignore = '[]' WHERE NOT pg_temp.is_texts(ignore);
WITH mended AS (
    UPDATE document_chunks SET headings = '[]' WHERE NOT pg_temp.is_texts(headings) RETURNING owner
)
UPDATE documents SET chunks_digest = '' WHERE key IN (SELECT owner FROM mended);
WITH mended AS (
    UPDATE context_chunks SET headings = '[]' WHERE NOT pg_temp.is_texts(headings) RETURNING owner
)
UPDATE contexts SET row_digest = '' WHERE id IN (SELECT owner FROM mended);
WITH gone AS (
    DELETE FROM document_embeddings e WHERE NOT EXISTS (SELECT FROM document_chunks c WHERE c.id = e.chunk)
        OR NOT EXISTS (SELECT FROM models m WHERE m.key = e.model AND m.dimension = vector_dims(e.embedding))
    RETURNING chunk
)
UPDATE documents SET embeddings_digest = ''
WHERE key IN (SELECT c.owner FROM document_chunks c JOIN gone ON gone.chunk = c.id);
WITH gone AS (
    DELETE FROM context_embeddings e WHERE NOT EXISTS (SELECT FROM context_chunks c WHERE c.id = e.chunk)
        OR NOT EXISTS (SELECT FROM models m WHERE m.key = e.model AND m.dimension = vector_dims(e.embedding))
    RETURNING chunk
)
UPDATE contexts SET embeddings_digest = ''
WHERE id IN (SELECT c.owner FROM context_chunks c JOIN gone ON gone.chunk = c.id);
UPDATE origins SET model = NULL WHERE model IN (SELECT key FROM models WHERE dimension NOT BETWEEN 1 AND 16000);
DELETE FROM models WHERE dimension NOT BETWEEN 1 AND 16000;
DELETE FROM stores WHERE metric NOT IN ('cosine', 'dot', 'euclidean');
DELETE FROM vectors v WHERE dimension < 1 OR NOT EXISTS (
    SELECT FROM vector_embeddings e WHERE e.vector = v.key AND e.store = v.store AND e.dimension = v.dimension
    AND (e.embedding IS NULL OR vector_dims(e.embedding) = e.dimension)
    AND (e.raw IS NULL OR octet_length(e.raw) IN (4 * e.dimension, 8 * e.dimension))
);

ALTER TABLE models ADD CONSTRAINT dimension CHECK (dimension BETWEEN 1 AND 16000);
ALTER TABLE documents
    ADD CONSTRAINT metadata CHECK (json_typeof(metadata::json) = 'object'),
    ADD CONSTRAINT fields CHECK (
        jsonb_typeof(fields::jsonb) = 'object' AND NOT jsonb_path_exists(fields::jsonb, 'strict $.**{33 to last}')
    );
ALTER TABLE contexts
    ADD CONSTRAINT metadata CHECK (json_typeof(metadata::json) = 'object'),
    ADD CONSTRAINT fields CHECK (
        jsonb_typeof(fields::jsonb) = 'object' AND NOT jsonb_path_exists(fields::jsonb, 'strict $.**{33 to last}')
    );
ALTER TABLE vectors
    ADD CONSTRAINT metadata CHECK (json_typeof(metadata::json) = 'object'),
    ADD CONSTRAINT fields CHECK (
        jsonb_typeof(fields::jsonb) = 'object' AND NOT jsonb_path_exists(fields::jsonb, 'strict $.**{33 to last}')
    ),
    ADD CONSTRAINT place UNIQUE (key, store, dimension);
ALTER TABLE context_images ADD CONSTRAINT metadata CHECK (json_typeof(metadata::json) = 'object');
ALTER TABLE libraries ADD CONSTRAINT ignore CHECK (
    json_typeof(ignore::json) = 'array' AND ignore ~ '^\[\s*("([^"\\]|\\.)*"\s*(,\s*"([^"\\]|\\.)*"\s*)*)?\]$'
);
ALTER TABLE stores ADD CONSTRAINT metric CHECK (metric IN ('cosine', 'dot', 'euclidean'));
ALTER TABLE document_chunks ADD CONSTRAINT headings CHECK (
    json_typeof(headings::json) = 'array' AND headings ~ '^\[\s*("([^"\\]|\\.)*"\s*(,\s*"([^"\\]|\\.)*"\s*)*)?\]$'
);
ALTER TABLE context_chunks ADD CONSTRAINT headings CHECK (
    json_typeof(headings::json) = 'array' AND headings ~ '^\[\s*("([^"\\]|\\.)*"\s*(,\s*"([^"\\]|\\.)*"\s*)*)?\]$'
);
ALTER TABLE vector_embeddings
    ADD CONSTRAINT dimension CHECK (dimension > 0 AND vector_dims(embedding) = dimension),
    ADD CONSTRAINT raw CHECK (octet_length(raw) IN (4 * dimension, 8 * dimension)),
    DROP CONSTRAINT vector_embeddings_vector_fkey,
    ADD CONSTRAINT place FOREIGN KEY (vector, store, dimension) REFERENCES vectors (key, store, dimension)
        ON DELETE CASCADE;

-- An embedding is one of a passage, and goes with it.
DROP TRIGGER remove_embeddings ON document_chunks;
DROP TRIGGER remove_embeddings ON context_chunks;
DROP FUNCTION remove_embeddings();
ALTER TABLE document_embeddings
    ADD CONSTRAINT passage FOREIGN KEY (chunk) REFERENCES document_chunks (id) ON DELETE CASCADE;
ALTER TABLE context_embeddings
    ADD CONSTRAINT passage FOREIGN KEY (chunk) REFERENCES context_chunks (id) ON DELETE CASCADE;

-- It has the dimension of its model, which is one of an origin that its publisher may see. The rights of the publisher
-- suffice for that.
CREATE FUNCTION check_dimensions() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM added a WHERE NOT EXISTS (
        SELECT FROM mcpvectordb.models m WHERE m.key = a.model AND m.dimension = vector_dims(a.embedding)
    )) THEN
        RAISE EXCEPTION 'an embedding has not the dimension of the model of its origin' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER check_dimensions AFTER INSERT ON document_embeddings REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION check_dimensions();
CREATE TRIGGER check_dimensions AFTER INSERT ON context_embeddings REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION check_dimensions();

-- Numbers that scores are computed with.
UPDATE document_chunks SET tokens = 0 WHERE tokens < 0;
UPDATE contexts SET tokens = 0 WHERE tokens < 0;
ALTER TABLE document_chunks ADD CONSTRAINT tokens CHECK (tokens >= 0);
ALTER TABLE contexts ADD CONSTRAINT tokens CHECK (tokens >= 0);
