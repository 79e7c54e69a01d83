"""What the suites of the store share: rows, plans, and processes of its own."""
