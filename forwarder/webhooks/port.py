"""The notifier's port for posting to customers' endpoints: the sender, which headers of a customer's own may be sent with a
delivery, and how deliveries are signed: Standard Webhooks, symmetric (`v1`) and asymmetric (`v1a`, Ed25519). Faults of endpoints
and of the network are returned, not raised.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"""

import base64
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Final, Protocol

from nacl.signing import SigningKey

from forwarder.reservation.checks.card_numbers import find
from forwarder.reservation.problems import FieldFault, pointer_to


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The endpoint's response. `retry_after_seconds`: from its `Retry-After`. `excerpt`: the beginning of the body."""

    status: int
    retry_after_seconds: float | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No response; whether the endpoint has the message is unknown. `failure` is a stable class, `detail` is for people."""

    failure: str
    detail: str = ""


PostResult = EndpointResponse | Unanswered


class Sender(Protocol):
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        """Post once, within the sender's time limit. No retry, no redirect is followed."""


class BadTarget(ValueError):
    """Not a URL that may be posted to. The message says what would be right; `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


MAX_HEADERS: Final = 10
_RESERVED: Final = frozenset(
    "accept-encoding connection expect host keep-alive te traceparent tracestate trailer transfer-encoding upgrade "
    "user-agent".split()
)


class BadHeaders(ValueError):
    """Headers that cannot be sent. `faults` quote no value."""

    def __init__(self, faults: Sequence[FieldFault]) -> None:
        super().__init__("; ".join(f"{fault.pointer.removeprefix('/headers/')} {fault.detail}" for fault in faults))
        self.faults = faults


def require_headers(headers: Mapping[str, str]) -> None:
    """Raises `BadHeaders` unless all of them may be sent."""
    spellings, faults = Counter(name.lower() for name in headers), []
    for number, (name, value) in enumerate(headers.items(), start=1):
        at = pointer_to("headers", name)
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", name) or find(name):
            fault = FieldFault(
                at, "invalid_value", "is not a header name: letters, digits and hyphens, such as X-Api-Key"
            )
        elif name.lower() in _RESERVED or name.lower().startswith(("content-", "proxy-", "webhook-")):
            fault = FieldFault(at, "reserved", "is reserved: the forwarder or its connection sets it")
        elif len(value) > 2_000:  # noqa: PLR2004
            fault = FieldFault(at, "too_long", "must have a value of at most 2,000 characters")
        elif not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value):
            fault = FieldFault(
                at, "invalid_value", "must have a value of printable ASCII characters, without spaces at its ends"
            )
        elif spellings[name.lower()] > 1:
            fault = FieldFault(at, "invalid_value", "is given twice")
        elif number > MAX_HEADERS:
            fault = FieldFault(at, "invalid_value", f"is one too many: at most {MAX_HEADERS} headers")
        else:
            continue
        faults.append(fault)
    if faults:
        raise BadHeaders(faults)


# --- signatures ---

_PREFIX: Final = "whsec_"


def new_secret() -> str:
    """A secret of 32 random bytes, in the format of Standard Webhooks."""
    return _PREFIX + _base64(secrets.token_bytes(32))


def key_of(secret: str) -> bytes:
    """The bytes of a secret. Raises `ValueError` unless it is `whsec_` and the base64 of 24 to 64 bytes."""
    key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    if not secret.startswith(_PREFIX) or not 24 <= len(key) <= 64:  # noqa: PLR2004 - by the specification
        raise ValueError("not a secret of Standard Webhooks")
    return key


def public_key(secret: str) -> str:
    """The key that verifies the `v1a` signatures of `secret`. It cannot sign."""
    return "whpk_" + _base64(bytes(_signing_key(secret).verify_key))


def signed_headers(
    signing_secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes, asymmetric: bool = False
) -> dict[str, str]:
    """The headers that sign `body`, with a `v1` signature per secret, and a `v1a` one too if `asymmetric`. `timestamp`: the Unix
    time of this attempt, in seconds."""
    content = b"%s.%d." % (message_id.encode(), timestamp) + body
    signatures = [f"v1,{_base64(hmac.digest(key_of(secret), content, sha256))}" for secret in signing_secrets]
    if asymmetric:
        signatures += [f"v1a,{_base64(_signing_key(secret).sign(content).signature)}" for secret in signing_secrets]
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": " ".join(signatures)}


@lru_cache(maxsize=4096)
def _signing_key(secret: str) -> SigningKey:
    """Derived from the secret, so that one secret is stored, sealed and rotated for both kinds of signature."""
    derived_for = b"reservation forwarder: Ed25519 key of a webhook's v1a signatures"
    return SigningKey(hmac.digest(key_of(secret), derived_for, sha256))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
