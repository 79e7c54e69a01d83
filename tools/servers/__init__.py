"""Real Kafka and PostgreSQL, for tests and measurements: named in the environment, in Docker, or as local processes."""
