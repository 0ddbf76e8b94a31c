"""Documents and contexts together: one ranking, lines by pattern, quotations, similar texts."""
