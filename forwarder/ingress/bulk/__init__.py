"""Many submissions in one request: split, read and checked one by one, published together. Reuses the code of one submission."""
