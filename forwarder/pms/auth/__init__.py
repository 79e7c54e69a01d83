"""Access tokens: getting, renewing and sharing them among processes. Touches the PMS's authorization server."""
