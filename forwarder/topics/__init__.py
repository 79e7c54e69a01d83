"""SEAM: the log that stands between the stages. Stages import `port` and `codec`; `assembly` chooses `kafka` or `embedded`."""
