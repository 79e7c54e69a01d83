"""How deliveries are signed: Standard Webhooks, symmetric (`v1`). Pure.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hmac
import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32


def new_secret() -> str:
    """A secret of 32 random bytes, in the format of Standard Webhooks."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signed_headers(signing_secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that sign `body`, with one signature per secret. `timestamp`: the Unix time of this attempt, in seconds."""
    signatures = (_signature(secret, b"%s.%d." % (message_id.encode(), timestamp) + body) for secret in signing_secrets)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, content, sha256)).decode()
