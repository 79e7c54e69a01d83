"""API tokens: made here, and known again by their hash. No I/O."""

import secrets
from hashlib import sha256

# So that a leaked token is recognised for what it is.
_LIVE_PREFIX = "fwd_live_"
_TEST_PREFIX = "fwd_test_"
_KEY_PREFIX = "key_"


def new_token(*, test: bool = False) -> str:
    """A token with 32 random bytes, which says whether it is a test key's."""
    return (_TEST_PREFIX if test else _LIVE_PREFIX) + secrets.token_urlsafe(32)


def is_test_token(token: str) -> bool:
    """Whether it says that it is a test key's. What it says can be relied on once its hash is known: that covers all of it."""
    return token.startswith(_TEST_PREFIX)


def new_key_id() -> str:
    """An identifier by which a key is spoken of; it opens nothing."""
    return _KEY_PREFIX + secrets.token_hex(6)


def token_hash(token: str) -> str:
    """What is kept of a token."""
    return sha256(token.encode()).hexdigest()
