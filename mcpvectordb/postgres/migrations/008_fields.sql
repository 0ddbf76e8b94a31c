-- An index of metadata, so that a filter need not parse the JSON of every item: a row for each value of `fields`, whose
-- term is the path, a letter for the kind, and the value in a form that compares as it does (filters/postgres.py makes
-- the same ones of conditions). Triggers keep it, in the transaction of the item.
CREATE TABLE document_fields (
    item bigint NOT NULL,
    origin integer NOT NULL,
    term text COLLATE "C" NOT NULL,
    PRIMARY KEY (item, term) INCLUDE (origin)
);
CREATE INDEX document_fields_by_term ON document_fields (term, item) INCLUDE (origin);
CREATE TABLE context_fields (LIKE document_fields INCLUDING INDEXES);
CREATE TABLE vector_fields (LIKE document_fields INCLUDING INDEXES);
ALTER TABLE document_fields ADD FOREIGN KEY (item) REFERENCES documents (key) ON DELETE CASCADE;
ALTER TABLE context_fields ADD FOREIGN KEY (item) REFERENCES contexts (id) ON DELETE CASCADE;
ALTER TABLE vector_fields ADD FOREIGN KEY (item) REFERENCES vectors (key) ON DELETE CASCADE;

-- Kinds: a array, b boolean, m member of an array (then its own kind), n number, o object, s string, z null. A string
-- that is written as a number is a number, too, with an s at its end. A long text is its beginning and a hash.
CREATE FUNCTION field_terms(fields json) RETURNS SETOF text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE inside (path, member, value) AS (
        SELECT '{}'::text[], '', fields
        UNION ALL
        SELECT i.path || below.path, below.member, below.value FROM inside i, LATERAL (
            SELECT ARRAY[each.key], '', each.value
            FROM json_each(CASE WHEN i.member = '' AND json_typeof(i.value) = 'object' THEN i.value END) AS each
            UNION ALL
            SELECT '{}', 'm', each.value
            FROM json_array_elements(CASE WHEN i.member = '' AND json_typeof(i.value) = 'array' THEN i.value END) AS each
        ) AS below (path, member, value)
    ), typed AS (
        SELECT path, member, json_typeof(value) AS kind, value #>> '{}' AS written FROM inside WHERE path <> '{}'
    ), numbered AS (
        SELECT *, CASE WHEN kind = 'number'
            OR kind = 'string' AND written ~ '^[ \t\n\v\f\r]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t\n\v\f\r]*$'
            THEN mcpvectordb.number(written)::float8 END AS number FROM typed
    ), said AS (
        SELECT to_json(path)::text AS path, member || CASE kind
            WHEN 'array' THEN 'a' WHEN 'boolean' THEN 'b' || written WHEN 'object' THEN 'o' WHEN 'null' THEN 'z'
            WHEN 'string' THEN 's' || CASE WHEN length(written) > 100 THEN left(written, 100) || md5(written) ELSE written END
            END AS value
        FROM numbered
        UNION ALL
        SELECT to_json(path)::text, member || 'n' || CASE WHEN number < 0
            THEN 'm' || translate(encode(float8send(number), 'hex'), '0123456789abcdef', 'fedcba9876543210')
            ELSE 'p' || encode(float8send(number), 'hex') END || CASE kind WHEN 'string' THEN 's' ELSE '' END
        FROM numbered WHERE number IS NOT NULL
    )
    SELECT DISTINCT CASE WHEN length(path) > 100 THEN left(path, 100) || md5(path) ELSE path END || value
    FROM said WHERE value IS NOT NULL
$$;

-- Arguments: the table of terms, and the key of the items.
CREATE FUNCTION add_fields() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        EXECUTE format('DELETE FROM mcpvectordb.%I f USING added a WHERE f.item = a.%I', TG_ARGV[0], TG_ARGV[1]);
    END IF;
    EXECUTE format(
        'INSERT INTO mcpvectordb.%I (item, origin, term) '
        'SELECT a.%I, a.origin, t FROM added a, mcpvectordb.field_terms(a.fields) AS t', TG_ARGV[0], TG_ARGV[1]
    );
    RETURN NULL;
END $$;
CREATE TRIGGER fields AFTER INSERT ON documents REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_fields('document_fields', 'key');
CREATE TRIGGER fields_again AFTER UPDATE ON documents REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_fields('document_fields', 'key');
CREATE TRIGGER fields AFTER INSERT ON contexts REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_fields('context_fields', 'id');
CREATE TRIGGER fields AFTER INSERT ON vectors REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION add_fields('vector_fields', 'key');

-- From documents to their passages and back without reading these.
CREATE INDEX document_chunks_of_owner ON document_chunks (owner) INCLUDE (id, origin);
CREATE INDEX document_chunks_owner ON document_chunks (id) INCLUDE (owner, origin);

INSERT INTO document_fields (item, origin, term) SELECT key, origin, t FROM documents, field_terms(fields) AS t;
INSERT INTO context_fields (item, origin, term) SELECT id, origin, t FROM contexts, field_terms(fields) AS t;
INSERT INTO vector_fields (item, origin, term) SELECT key, origin, t FROM vectors, field_terms(fields) AS t;
DO $$
DECLARE
    indexed text;
BEGIN
    FOREACH indexed IN ARRAY ARRAY['document_fields', 'context_fields', 'vector_fields'] LOOP
        EXECUTE format('ALTER TABLE mcpvectordb.%I ENABLE ROW LEVEL SECURITY', indexed);
        EXECUTE format('CREATE POLICY reading ON mcpvectordb.%I FOR SELECT USING (origin = '
            'ANY ((SELECT mcpvectordb.readable_origins())::integer[]))', indexed);
    END LOOP;
END $$;
ANALYZE document_fields, context_fields, vector_fields;
