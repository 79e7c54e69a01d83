"""What comes in: from the requests topic into rows, and rows due in the store into account queues."""
