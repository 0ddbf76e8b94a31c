-- Who may read and publish which origins. The owner of the schema may everything; others see what `grants` says of a
-- role that they have, where origin NULL stands for all, also for later ones. Postings and statistics are written by
-- triggers, so publishers need no right to change them.

CREATE TABLE grants (
    role name NOT NULL,
    origin integer REFERENCES origins (key) ON DELETE CASCADE,
    publishes boolean NOT NULL,
    UNIQUE NULLS NOT DISTINCT (role, origin)
);

CREATE FUNCTION granted_origins(who name, to_publish boolean) RETURNS integer[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(array_agg(DISTINCT o.key), '{}') FROM grants g
    JOIN pg_catalog.pg_roles r ON r.rolname = g.role
    JOIN origins o ON g.origin IS NULL OR g.origin = o.key
    WHERE (g.publishes OR NOT to_publish) AND pg_catalog.pg_has_role(who, r.oid, 'USAGE')
$$;

-- Whether a role may publish under any name; otherwise its origins exist already.
CREATE FUNCTION publishes_anything(who name) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT 1 FROM grants g JOIN pg_catalog.pg_roles r ON r.rolname = g.role
        WHERE g.publishes AND g.origin IS NULL AND pg_catalog.pg_has_role(who, r.oid, 'USAGE'))
$$;

DO $$
DECLARE
    published text;
    readable CONSTANT text := 'ANY ((SELECT mcpvectordb.granted_origins(current_user, false))::integer[])';
    writable CONSTANT text := 'ANY ((SELECT mcpvectordb.granted_origins(current_user, true))::integer[])';
BEGIN
    FOREACH published IN ARRAY ARRAY[
        'totals', 'libraries', 'library_notes', 'documents', 'former_ids', 'document_chunks', 'document_words',
        'document_terms', 'document_embeddings', 'contexts', 'context_tags', 'context_images', 'context_chunks',
        'context_words', 'context_terms', 'context_spellings', 'context_spelling_terms', 'context_embeddings',
        'stores', 'vectors', 'vector_embeddings'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', published);
        EXECUTE format('CREATE POLICY reading ON %I FOR SELECT USING (origin = %s)', published, readable);
        EXECUTE format('CREATE POLICY adding ON %I FOR INSERT WITH CHECK (origin = %s)', published, writable);
        EXECUTE format('CREATE POLICY changing ON %I FOR UPDATE USING (origin = %s)', published, writable);
        EXECUTE format('CREATE POLICY deleting ON %I FOR DELETE USING (origin = %s)', published, writable);
    END LOOP;
    ALTER TABLE origins ENABLE ROW LEVEL SECURITY;
    -- A new row is checked by this, too, when no grant can name it yet.
    EXECUTE format(
        'CREATE POLICY reading ON origins FOR SELECT USING (key = %s OR publishes_anything(current_user))', readable
    );
    EXECUTE format('CREATE POLICY changing ON origins FOR UPDATE USING (key = %s)', writable);
END $$;
CREATE POLICY adding ON origins FOR INSERT WITH CHECK (publishes_anything(current_user));

-- HNSW indexes belong to the owner's tables: a publisher has them made by this function, once there are enough rows.
-- A graph of half floats takes up to 4,000 dimensions, one of sign bits any number.
CREATE FUNCTION make_graph(name text, indexed text, dimension integer, condition text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET maintenance_work_mem = '1GB' AS $$
BEGIN
    IF to_regclass('mcpvectordb.' || quote_ident(name)) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'CREATE INDEX IF NOT EXISTS %I ON %I USING hnsw (%s) WITH (m = 16, ef_construction = 200) WHERE %s',
        name, indexed,
        CASE WHEN dimension <= 4000
            THEN format('(l2_normalize(embedding)::halfvec(%s)) halfvec_cosine_ops', dimension)
            ELSE format('(binary_quantize(embedding)::bit(%s)) bit_hamming_ops', dimension) END,
        condition
    );
    RETURN true;
END $$;
REVOKE EXECUTE ON FUNCTION make_graph FROM PUBLIC;

-- The graphs that are due: of the models of passages, and of the dimensions of stores that rank by cosine. Their names
-- end in the number of the model, or of store and dimension, by which a query must name them.
CREATE FUNCTION make_graphs(at_least bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    all_due jsonb[];
    due jsonb;
    made integer := 0;
BEGIN
    -- Collected first: a table that is being read gets no index.
    SELECT array_agg(to_jsonb(d)) INTO all_due FROM (
        SELECT format('document_embeddings_graph_%s', m.key) AS name, 'document_embeddings' AS indexed, m.dimension,
            format('model = %s', m.key) AS condition
        FROM models m WHERE (SELECT count(*) FROM document_embeddings e WHERE e.model = m.key) > at_least
        UNION ALL
        SELECT format('context_embeddings_graph_%s', m.key), 'context_embeddings', m.dimension,
            format('model = %s', m.key)
        FROM models m WHERE (SELECT count(*) FROM context_embeddings e WHERE e.model = m.key) > at_least
        UNION ALL
        SELECT format('vector_embeddings_graph_%s_%s', e.store, e.dimension), 'vector_embeddings', e.dimension,
            format('store = %s AND dimension = %s', e.store, e.dimension)
        FROM vector_embeddings e JOIN stores s ON s.key = e.store AND s.metric = 'cosine'
        WHERE e.embedding IS NOT NULL
        GROUP BY e.store, e.dimension HAVING count(*) > at_least
    ) AS d;
    FOREACH due IN ARRAY coalesce(all_due, '{}') LOOP
        made := made + make_graph(
            due ->> 'name', due ->> 'indexed', (due ->> 'dimension')::integer, due ->> 'condition'
        )::integer;
    END LOOP;
    RETURN made;
END $$;
REVOKE EXECUTE ON FUNCTION make_graphs FROM PUBLIC;
