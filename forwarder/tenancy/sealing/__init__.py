"""What is sealed: the keys that a deployment's secrets make, texts (credentials, webhook secrets, grants) and cards. No I/O."""
