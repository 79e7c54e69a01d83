"""Cards on their way through the worker: re-sealed at intake, opened for a push, destroyed. Touches store and tenancy, never a PMS."""
