"""Ingress, query and notifier on parts in memory, called without a socket, and the requests to send them."""
