"""SEAM: submissions, results and webhook deliveries in PostgreSQL or SQLite. Stages import `port` modules; `assembly` the rest."""
