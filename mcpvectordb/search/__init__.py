"""Documents and memories together: one ranking, lines by pattern, quotations, similar texts."""
