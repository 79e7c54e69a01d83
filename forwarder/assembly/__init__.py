"""The only place where concrete parts are chosen, opened and closed. Everything else sees ports.

`backend` is what every command works on, `roles` are the processes, `simulation` the simulated PMSs, `published` what the code says
of itself. What is opened here is closed in the reverse order, however the block ends.
"""
