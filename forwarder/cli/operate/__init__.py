"""What operators look at and repair: submissions, dead letters, results, topics, adapters, the database."""
