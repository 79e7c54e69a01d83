"""Requests to PMSs over connections of our own, so that it is known for certain when nothing was sent."""
