"""Queries over the indexes: the ranker, relevance, reranking, variety, snippets."""
