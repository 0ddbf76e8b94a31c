"""`mcpvectordb web`: a page to look into the file, and the JSON API that it uses."""
