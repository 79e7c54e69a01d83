"""What runs until it is stopped: the stages, everything at once, simulated PMSs; and the guided tour."""
