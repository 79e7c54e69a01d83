"""The only place where concrete parts are chosen, opened and closed. Everything else sees ports.

`backend` is what every command works on; `roles` has a module for each process, and one for all of them in one; `commands` has
what single commands need. A process imports what is its own alone. What is opened here is closed in the reverse order, however
the block ends.
"""
