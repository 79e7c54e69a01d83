"""The notifier's side of the store: webhook deliveries queued, claimed and logged."""
