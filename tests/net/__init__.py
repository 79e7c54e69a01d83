"""The net: the whole deployment in one process and simulated time, moved by random histories, and a judge who sees it from outside.

A history is a list of moves (`moves/`, one class each) drawn from a seed. `world` is what they move: callers, two ingresses,
workers with the real store, log and adapters, PMSs with their habits, operators. `record` notes what callers, PMSs and the results
topic saw, and `judge` decides from that alone. `histories` draws, runs and shrinks; `__main__` is `make net`.
"""
