"""What the processes of the net stand on: the log, the store and virtual time. Each of their steps may fail."""
