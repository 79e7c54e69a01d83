"""Simulated PMSs for development and tests: with rooms that sell out, faults on demand, and a count of the bookings made.
Independent: imports neither the stages nor the PMS client; both sides follow the published contracts on their own."""
