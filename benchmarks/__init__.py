"""Measurements of mcpvectordb through its public API: `python -m benchmarks NAME`. Results are in
README.md.
"""
