"""What the suites of the log share: messages, deliveries, and what foreign programs write."""
