"""API tokens: made here, and known again by their hash. No I/O."""

import secrets
from hashlib import sha256

_TOKEN_PREFIX = "fwd_live_"  # noqa: S105 - so that a leaked token is recognised for what it is
_KEY_PREFIX = "key_"


def new_token() -> str:
    """A token with 32 random bytes."""
    return _TOKEN_PREFIX + secrets.token_urlsafe(32)


def new_key_id() -> str:
    """An identifier by which a key is spoken of; it opens nothing."""
    return _KEY_PREFIX + secrets.token_hex(6)


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode()).hexdigest()
