"""`forwarder listen`: result events posted to a program that is being written, read from the log or over HTTP."""
