"""After a restore: detects that the store is behind the topics, and brings it up to date."""
