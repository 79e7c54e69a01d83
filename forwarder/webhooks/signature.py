"""How deliveries are signed: Standard Webhooks, symmetric (`v1`) and asymmetric (`v1a`, Ed25519). Pure.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hmac
import secrets
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final

from nacl.signing import SigningKey

_PREFIX: Final = "whsec_"
_PUBLIC_PREFIX: Final = "whpk_"
_SECRET_BYTES: Final = 32
_KEY_MIN, _KEY_MAX = 24, 64
_DERIVED_FOR: Final = b"reservation forwarder: Ed25519 key of a webhook's v1a signatures"


def new_secret() -> str:
    """A secret of 32 random bytes, in the format of Standard Webhooks."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes of a secret. Raises `ValueError` unless it is `whsec_` and the base64 of 24 to 64 bytes."""
    key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    if not secret.startswith(_PREFIX) or not _KEY_MIN <= len(key) <= _KEY_MAX:
        raise ValueError("not a secret of Standard Webhooks")
    return key


def public_key(secret: str) -> str:
    """The key that verifies the `v1a` signatures of `secret`. It cannot sign."""
    return _PUBLIC_PREFIX + base64.b64encode(bytes(_signing_key(secret).verify_key)).decode()


def signed_headers(
    signing_secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes, asymmetric: bool = False
) -> dict[str, str]:
    """The headers that sign `body`, with a `v1` signature per secret, and a `v1a` one too if `asymmetric`. `timestamp`: the Unix
    time of this attempt, in seconds."""
    content = b"%s.%d." % (message_id.encode(), timestamp) + body
    kinds = (_signature, _asymmetric) if asymmetric else (_signature,)
    signatures = [sign(secret, content) for sign in kinds for secret in signing_secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


@lru_cache(maxsize=4096)
def _signing_key(secret: str) -> SigningKey:
    """Derived from the secret, so that one secret is stored, sealed and rotated for both kinds of signature."""
    return SigningKey(hmac.digest(key_of(secret), _DERIVED_FOR, sha256))


def _asymmetric(secret: str, content: bytes) -> str:
    return "v1a," + base64.b64encode(_signing_key(secret).sign(content).signature).decode()


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, content, sha256)).decode()
