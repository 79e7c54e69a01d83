"""What no reservation waits for: metrics of the backlog, and the removal of guests' data. Reads the log and changes the store."""
