"""Chunks and their indexes: keyword (FTS5), vector (vec0), and what stays resident in memory."""
