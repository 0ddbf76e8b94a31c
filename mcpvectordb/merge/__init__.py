"""Merge: two copies of a file that were both changed become one."""
