"""Chunks and their indexes: keyword (FTS5), vector (vec0), and what stays resident in memory."""

from mcpvectordb.index.resident import EVERYTHING, Allowed, Ranked

__all__ = ["EVERYTHING", "Allowed", "Ranked"]
