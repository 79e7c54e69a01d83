"""Apache Kafka as local processes: jars, brokers, secured brokers. Writes below the reaper's directory and the cache alone."""
