"""Text to vectors: the catalogue of models, where their weights come from, and the ONNX embedder
that runs them.
"""
