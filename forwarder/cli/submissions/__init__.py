"""`forwarder submissions` and `forwarder dead-letters`: what was submitted, found and repaired, one at a time or many."""
