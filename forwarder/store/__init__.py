"""SEAM: submissions, results and webhook deliveries in PostgreSQL or SQLite. Stages import ports, and assembly the rest."""
