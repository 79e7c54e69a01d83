"""`forwarder listen`: posts result events, read from the log or over HTTP, to a program under development."""
