"""What becomes of a push: decided, recorded, published. Touches store and log, never a PMS."""
