"""PostgreSQL as a local process, and databases for one test on any server. Writes below the reaper's directory alone."""
