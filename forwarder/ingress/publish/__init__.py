"""Publishing a submission once: looks up its idempotency key, or its content, before writing to the log."""
