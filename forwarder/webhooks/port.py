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
from forwarder.reservation.problems.problem import Fault, pointer_to


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The endpoint's response. `retry_after_seconds`: from its `Retry-After`. `excerpt`: the beginning of the body."""

    status: int
    retry_after_seconds: float | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No response; whether the endpoint has the message is unknown. `failure` is a stable class, `detail` is for people."""

    failure: str
    detail: str = ""


PostResult = EndpointResponse | NoResponse


class Sender(Protocol):
    """Posts to URLs that customers chose."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        """Post once, within the sender's time limit. No retry, no redirect is followed."""


class BadTarget(ValueError):
    """Not a URL that may be posted to. The message says what would be right; `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


MAX_HEADERS: Final = 10
_MAX_VALUE: Final = 2000
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_RESERVED: Final = frozenset(
    "accept-encoding connection expect host keep-alive te traceparent tracestate trailer transfer-encoding upgrade "
    "user-agent".split()
)
_RESERVED_PREFIXES: Final = ("content-", "proxy-", "webhook-")


class BadHeaders(ValueError):
    """Headers that cannot be sent. `faults` quote no value."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{fault.pointer.removeprefix('/headers/')} {fault.detail}" for fault in faults))
        self.faults = faults


def require_headers(headers: Mapping[str, str]) -> None:
    """Raises `BadHeaders` unless all of them may be sent."""
    spellings = Counter(name.lower() for name in headers)
    faults = [
        fault
        for number, (name, value) in enumerate(headers.items(), start=1)
        if (fault := _fault_of(name, value, number=number, repeated=spellings[name.lower()] > 1)) is not None
    ]
    if faults:
        raise BadHeaders(faults)


def _fault_of(name: str, value: str, *, number: int, repeated: bool) -> Fault | None:
    at = pointer_to("headers", name)
    if not _NAME.fullmatch(name) or find(name):
        return Fault(at, "invalid_value", "is not a header name: letters, digits and hyphens, such as X-Api-Key")
    if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES):
        return Fault(at, "reserved", "is reserved: the forwarder or its connection sets it")
    if len(value) > _MAX_VALUE:
        return Fault(at, "too_long", f"must have a value of at most {_MAX_VALUE:,} characters")
    if not _VALUE.fullmatch(value):
        return Fault(at, "invalid_value", "must have a value of printable ASCII characters, without spaces at its ends")
    if repeated:
        return Fault(at, "invalid_value", "is given twice")
    if number > MAX_HEADERS:
        return Fault(at, "invalid_value", f"is one too many: at most {MAX_HEADERS} headers")
    return None


_PREFIX: Final = "whsec_"
_PUBLIC_PREFIX: Final = "whpk_"
_KEY_MIN, _KEY_MAX = 24, 64
_DERIVED_FOR: Final = b"reservation forwarder: Ed25519 key of a webhook's v1a signatures"


def new_secret() -> str:
    """A secret of 32 random bytes, in the format of Standard Webhooks."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


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
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp), "webhook-signature": " ".join(signatures)}


@lru_cache(maxsize=4096)
def _signing_key(secret: str) -> SigningKey:
    """Derived from the secret, so that one secret is stored, sealed and rotated for both kinds of signature."""
    return SigningKey(hmac.digest(key_of(secret), _DERIVED_FOR, sha256))


def _asymmetric(secret: str, content: bytes) -> str:
    return "v1a," + base64.b64encode(_signing_key(secret).sign(content).signature).decode()


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return "v1," + base64.b64encode(hmac.digest(key, content, sha256)).decode()
