"""Problems (RFC 9457): the type, and all problems that the service responds with or records. Pure."""
