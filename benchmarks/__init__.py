"""Measurements of mcpvectordb through its public API; README.md has the results."""
