"""The deployment as a whole: its status, setup, topics, secrets and audit trail, and its recovery after a restore."""
