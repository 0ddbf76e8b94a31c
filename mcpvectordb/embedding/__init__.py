"""Text to vectors: the catalogue of models, their files, and the ONNX embedder and reranker."""
