"""What becomes of a push: decided, recorded, published, retried, dead-lettered."""
