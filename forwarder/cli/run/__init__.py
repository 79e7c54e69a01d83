"""Long-running commands: the stages, all of them in one process, simulated PMSs; and the guided tour."""
