"""After a restore: whether the store is behind the topics, and bringing it up to them."""
