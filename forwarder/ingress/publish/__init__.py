"""Publishing a submission once: what is known of its key, or of what it asks for, comes before the log."""
