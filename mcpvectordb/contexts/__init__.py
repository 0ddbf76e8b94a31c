"""The contexts shelf: what agents remember, one entry after the other, in threads."""
