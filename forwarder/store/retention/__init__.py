"""Removing guests' data: from finished submissions after some days, or on request; and from old webhook deliveries."""
