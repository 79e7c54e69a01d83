"""Sockets: servers that say anything, byte for byte, receivers of webhooks, relays that cut connections."""
