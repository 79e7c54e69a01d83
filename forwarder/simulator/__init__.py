"""Simulated PMSs, to develop and to test against: with rooms that can be taken, faults on demand, and a count of what was made.

Stands beside the stages and imports none of them, nor the PMS seam: both sides keep to the published contracts by themselves.
"""
