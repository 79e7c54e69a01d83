"""STAGE 1: HTTP → topic. Takes reservations in once they are safe on the log; `routes` is the way in, `acceptance` the flow."""
