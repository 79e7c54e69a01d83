"""The audit trail: who did what, appended in the transaction of the operation, and never changed."""
