"""Schedules pushes: account queues, throttles, the memory budget. No I/O outside the process."""
