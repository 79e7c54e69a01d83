"""The processes that run, as each tells of itself every few seconds: for operators. No work depends on it."""
