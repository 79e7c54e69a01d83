"""What the suites of the log share: messages, taking them, and what foreign programs write."""
