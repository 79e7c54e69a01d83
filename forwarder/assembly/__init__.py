"""The only place where concrete parts are chosen, opened and closed. Everything else sees ports.

`backend` is what every command works on; `ingress`, `worker`, `query` and `notifier` are a process each, `everything` is all of
them in one, `simulation` the simulated PMSs; `published` is what the code says of itself. A process imports what is its own alone.
What is opened here is closed in the reverse order, however the block ends.
"""
