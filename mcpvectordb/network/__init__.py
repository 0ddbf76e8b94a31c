"""Requests to other machines: which addresses are public, and one deadline over all of it."""
