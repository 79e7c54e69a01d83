"""Workers and parts of one, with pushes that are answered by hand."""
