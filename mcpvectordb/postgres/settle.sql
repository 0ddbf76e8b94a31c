SELECT
    pg_catalog.set_config(
        'search_path',
        'mcpvectordb, ' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(coalesce(
            (
                SELECT n.nspname::pg_catalog.text
                FROM pg_catalog.pg_extension e
                JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
                WHERE e.extname OPERATOR(pg_catalog.=) 'vector'::pg_catalog.name
            ),
            'public'
        )) OPERATOR(pg_catalog.||) ', pg_temp',
        false
    ),
    pg_catalog.current_setting('server_encoding')
