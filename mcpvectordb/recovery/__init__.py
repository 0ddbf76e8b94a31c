"""Recovery of what can still be read of a damaged file."""
