"""Reading from the store: one submission, or a filtered list page by page."""
