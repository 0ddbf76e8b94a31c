"""History: what was changed when and by whom, what was before, and how it comes back."""
