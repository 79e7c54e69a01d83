"""What every process needs: clock, signals, supervision, loops, group commit. Knows nothing of reservations."""
