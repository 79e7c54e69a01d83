"""What operators do: a module for each noun, with its operations, its commands, and what the console shows of it. Sees ports."""
