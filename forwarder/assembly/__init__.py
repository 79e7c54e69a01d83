"""The only place where concrete parts are chosen, opened and closed. Everything else sees ports.

`backend` is shared by every command; `roles` has a module for each process, and one for all roles in one process; `commands`
has the parts of single commands. A process imports only what it needs. Everything opened here is closed in reverse order,
however the block ends.
"""
