"""Alembic's revisions. Each is written out in full, so that changing `store.tables` does not change history."""
