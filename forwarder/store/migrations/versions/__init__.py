"""The revisions, by number."""
