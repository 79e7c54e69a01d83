"""Sockets: servers that say anything, byte for byte, and receivers of webhooks."""
