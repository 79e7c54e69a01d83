"""Reading submissions: one, or a list page by page, filtered. SQL for the readers' side of the store."""
