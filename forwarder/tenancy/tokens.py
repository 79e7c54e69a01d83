"""Tokens of API keys: how they are made, recognised and stored. Pure.

A token ends in a MAC by a key that the processes of a deployment share. So guesses are recognized without a look-up, and a flood of
them never reaches the database. The MAC grants nothing: only a token whose hash is stored does.
"""

import base64
import hmac
import secrets
from hashlib import sha256
from typing import Final

# Prefixes, so that leaked tokens are easy to recognize.
_LIVE_PREFIX: Final = "fwd_live_"
_TEST_PREFIX: Final = "fwd_test_"
_KEY_PREFIX: Final = "key_"

_MAC_BYTES: Final = 9
_MAC_LENGTH: Final = 12
"""The length of the MAC in base64."""


def new_token(mac_key: bytes, *, test: bool = False) -> str:
    """A token with 32 random bytes, and the prefix of a live or test key."""
    head = (_TEST_PREFIX if test else _LIVE_PREFIX) + secrets.token_urlsafe(32)
    return head + _mac(mac_key, head)


def may_be_ours(mac_key: bytes, token: str) -> bool:
    """Whether this deployment may have made the token. If not, the token is unknown without a look-up."""
    head, mac = token[:-_MAC_LENGTH], token[-_MAC_LENGTH:]
    return hmac.compare_digest(mac.encode(), _mac(mac_key, head).encode())


def is_test_token(token: str) -> bool:
    """Whether it has a test key's prefix. Trustworthy once its hash, which covers the prefix, is known."""
    return token.startswith(_TEST_PREFIX)


def new_key_id() -> str:
    """An identifier for a key. It grants nothing."""
    return _KEY_PREFIX + secrets.token_hex(6)


def token_hash(token: str) -> str:
    """The stored hash of a token."""
    return sha256(token.encode()).hexdigest()


def _mac(mac_key: bytes, head: str) -> str:
    mac = hmac.digest(mac_key, head.encode(), "sha256")[:_MAC_BYTES]
    return base64.urlsafe_b64encode(mac).decode()
