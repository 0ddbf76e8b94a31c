"""Measurements of mcpvectordb through its public API; `results` has what they gave."""
