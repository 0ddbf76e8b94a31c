"""Everything of a file in formats that other programs read: JSONL, Markdown, CSV, Parquet."""
