"""The only place where concrete parts are chosen, opened and closed. Everything else sees ports. `backend` is shared by every
process and command, `parts` by several, `role` by processes, each of which has a module. A process imports only what it needs.
Everything opened here is closed in reverse order, however the block ends."""
