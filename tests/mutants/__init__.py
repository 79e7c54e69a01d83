"""Holes that were mended, opened again one at a time: each mend taken back must be found by the net."""
