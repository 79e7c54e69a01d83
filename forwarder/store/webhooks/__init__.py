"""Webhook deliveries as rows: queued, claimed, logged. SQL for the notifier's side of the store."""
