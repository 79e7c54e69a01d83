"""Exhaustive exploration: every history of a few submissions up to a bound, over the functions and statements of the product."""
