"""Building blocks of every process: clock, signals, supervision, loops, group commit. Independent of reservations."""
