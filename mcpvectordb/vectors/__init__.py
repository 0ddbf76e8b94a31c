"""The vectors shelf: embeddings that a user brings along."""
