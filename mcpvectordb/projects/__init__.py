"""Projects: which one a folder belongs to, and what of a file belongs to it."""
