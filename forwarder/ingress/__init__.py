"""STAGE 1: HTTP → topic. Accepts reservations once they are safe on the log. `routes` has the addresses and the main flow."""
