"""The readers' side of the store: one submission, or a filtered list page by page."""
