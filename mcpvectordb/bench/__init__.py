"""Measure searches on a file of one's own by known-item queries, and advise settings."""
