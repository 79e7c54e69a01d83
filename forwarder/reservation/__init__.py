"""The vocabulary every room shares. Pure: no I/O, nothing else of ours is imported here."""
