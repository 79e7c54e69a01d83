"""What is kept of guests, and for how long: erasing one, retention, purging what was finished long ago."""
