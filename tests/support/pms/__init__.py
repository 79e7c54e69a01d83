"""PMSs that answer from a table, and the vendors' own contracts to hold requests against."""
