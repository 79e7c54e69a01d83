"""The `forwarder` command: one module per noun. Exit codes: 0 done, 1 failed, 2 wrong usage."""
