"""The simulated PMSs, a module for each wire format. Uses the web framework and the simulated world."""
