"""Tenancy in the database: the only part of `tenancy` that touches SQL."""
