"""SEAM: the results. Stages import `port`; `assembly` opens the SQL store, on PostgreSQL or SQLite."""
