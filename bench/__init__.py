"""How fast the forwarder is, and against what. Starts the real thing as separate processes and measures it from outside."""
