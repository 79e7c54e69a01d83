"""The log on Apache Kafka, by aiokafka: what `assembly` chooses when brokers are configured."""
