"""The simulated PMSs, a module for each wire format. Touches the web framework and the simulated world."""
