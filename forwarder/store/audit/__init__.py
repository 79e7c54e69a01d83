"""The audit trail: who did what, appended in the transaction of what was done, and chained by hashes."""
