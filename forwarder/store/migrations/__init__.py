"""Alembic's revisions. Each says in full what it makes, so that a later change of the tables' module does not change history."""
