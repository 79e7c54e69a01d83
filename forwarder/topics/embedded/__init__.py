"""The log in one SQLite file of this machine, used when no Kafka brokers are configured."""
