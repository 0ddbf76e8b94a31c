"""Everything of a file in formats that other programs read, and what others have stored into it."""
