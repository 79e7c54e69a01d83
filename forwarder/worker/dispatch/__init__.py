"""Which row is pushed when: account queues, throttles, the memory budget. Touches nothing outside the process."""
