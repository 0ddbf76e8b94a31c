-- The roles that have a right on the schema or anything in it.
SELECT DISTINCT r.rolname FROM (
    SELECT nspowner, nspacl FROM pg_namespace WHERE nspname = 'mcpvectordb'
    UNION ALL SELECT relowner, relacl FROM pg_class
    WHERE relnamespace = 'mcpvectordb'::regnamespace
    UNION ALL SELECT c.relowner, t.attacl FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid
    WHERE c.relnamespace = 'mcpvectordb'::regnamespace
    UNION ALL SELECT proowner, proacl FROM pg_proc
    WHERE pronamespace = 'mcpvectordb'::regnamespace
) AS held (owner, acl), aclexplode(held.acl) AS a JOIN pg_roles r ON r.oid = a.grantee
WHERE a.grantee <> held.owner
