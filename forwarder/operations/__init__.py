"""Operators' actions: settle, cancel, replay, pause. Shared by the command line and the console. Uses the ports, never a stage."""
