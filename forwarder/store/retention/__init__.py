"""Guests' data, removed: from finished submissions after some days, or when somebody asks for it; and old webhook deliveries."""
