"""The SQL of submissions: each module makes statements and reads their rows. Touches SQLAlchemy and the tables; no I/O."""
