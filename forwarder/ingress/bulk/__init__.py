"""Many submissions in one request: told apart, read and checked one by one, published together. Uses what one submission uses."""
