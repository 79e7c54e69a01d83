"""The log on Apache Kafka, with aiokafka; used when brokers are configured."""
