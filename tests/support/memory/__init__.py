"""The seams in memory: log, store, webhooks, clock, host names. Touches no server, no disk and no real time."""
