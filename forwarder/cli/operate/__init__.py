"""Commands for running the deployment: status, results, topics, adapters, secrets, the audit trail; `privacy`: guests' data."""
