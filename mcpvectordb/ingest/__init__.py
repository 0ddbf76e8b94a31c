"""From a source to chunks: read its bytes, parse their text, split the text by its structure."""
