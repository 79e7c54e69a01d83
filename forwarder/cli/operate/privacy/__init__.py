"""Guests' data: erasing a guest, retention periods, and purging submissions that finished long ago."""
