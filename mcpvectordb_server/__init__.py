"""A mcpvectordb database for any MCP agent: `python -m mcpvectordb_server --db FILE`."""
