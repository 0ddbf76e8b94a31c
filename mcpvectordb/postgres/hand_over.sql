-- Give all that is in the schema to its owner.
DO $$
DECLARE
    owner pg_roles%ROWTYPE;
    each record;
BEGIN
    SELECT r.* INTO owner FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
    WHERE n.nspname = 'mcpvectordb';
    -- Sequences of columns go with their table.
    FOR each IN
        SELECT c.relname FROM pg_class c
        WHERE c.relnamespace = 'mcpvectordb'::regnamespace AND c.relkind IN ('r', 'v', 'S')
        AND c.relowner <> owner.oid AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
            AND d.deptype IN ('i', 'a') AND d.refclassid = 'pg_class'::regclass
        )
    LOOP
        EXECUTE format('ALTER TABLE mcpvectordb.%I OWNER TO %I', each.relname, owner.rolname);
    END LOOP;
    FOR each IN
        SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments FROM pg_proc p
        WHERE p.pronamespace = 'mcpvectordb'::regnamespace AND p.proowner <> owner.oid
    LOOP
        EXECUTE format(
            'ALTER ROUTINE mcpvectordb.%I(%s) OWNER TO %I',
            each.proname, each.arguments, owner.rolname
        );
    END LOOP;
END
$$
