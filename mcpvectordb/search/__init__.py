"""Queries over the indexes: hybrid ranking, fusion, relevance, reranking, expansion, highlights."""
