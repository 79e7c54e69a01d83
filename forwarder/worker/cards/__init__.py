"""Cards in the worker: re-sealed at intake, opened for a push, destroyed. Touches store and tenancy, never a PMS."""
