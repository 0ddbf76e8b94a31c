"""Machines that meet by themselves: copies of a file exchange what changed, in bundles."""
