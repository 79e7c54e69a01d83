"""What single commands need opened."""
