"""Guests' data: retention periods, erasing a guest, and scanning for card data."""
