"""From a source to chunks: read the bytes, find the text in them, split it where its structure
allows.
"""
