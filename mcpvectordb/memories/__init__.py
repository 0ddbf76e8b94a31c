"""Memories: short texts that agents and users store in threads, with tags, metadata and images."""
