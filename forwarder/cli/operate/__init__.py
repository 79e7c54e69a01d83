"""What operators look at and keep in order: status, results, topics, adapters, secrets, the audit trail; `privacy`: of guests."""
