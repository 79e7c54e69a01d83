"""Sealing: keys derived from a deployment's secrets, sealed texts (credentials, webhook secrets, grants) and cards. No I/O."""
