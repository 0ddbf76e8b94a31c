"""The SQLite file: opening, transactions, schema, and what is private to FTS5 and sqlite-vec."""
