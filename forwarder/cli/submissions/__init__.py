"""`forwarder submissions` and `forwarder dead-letters`: find and repair submissions, one at a time or many."""
