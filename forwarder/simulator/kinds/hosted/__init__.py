"""Simulated PMSs of the kinds that are mappings: each written from what is known of its vendor, and not from the mapping."""
