"""The HTTP API by which a workspace manages its webhooks. Touches the web framework and `notifier.webhooks`."""
