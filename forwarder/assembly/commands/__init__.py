"""Parts that single commands need."""
