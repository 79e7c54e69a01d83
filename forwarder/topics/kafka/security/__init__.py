"""Security of the Kafka connection: TLS, authentication and tokens, the ACLs of each stage, and diagnosing refused connections."""
