"""What the machine's workers stand on: log, store and PMSs whose every step may fail, in virtual time."""
