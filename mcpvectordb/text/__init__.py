"""Pure functions on text: tokens, queries, BM25."""
