"""What can be saved of a damaged file."""
