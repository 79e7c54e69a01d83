"""Tenancy kept in the database: the only place in `tenancy` that touches SQL."""
