"""The backlog: how much work is open, and since when. Read for metrics and operators; read-only."""
