"""The contract and the problems as pages for people."""
