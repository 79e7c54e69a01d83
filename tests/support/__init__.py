"""What several suites share: the backends that this machine can offer, real processes, and waiting on conditions."""
