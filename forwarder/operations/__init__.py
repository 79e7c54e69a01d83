"""What operators do: settle, cancel, replay, pause. For the command line and a console alike. Uses the seams, never a stage."""
