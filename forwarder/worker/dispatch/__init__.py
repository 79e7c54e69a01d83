"""Which row is pushed when: account queues, throttle, budgets. Touches nothing outside the process."""
