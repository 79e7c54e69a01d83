"""The simulator served on a real port or called in memory, and accounts that speak to it."""
