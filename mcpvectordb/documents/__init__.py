"""The documents shelf: ingest sources, browse them, and search their chunks."""
