"""Data protection: erases guests, deletes old data, and scans for card data. Every change is audited."""
