"""Webhooks as they arrive: whether they are the service's own, and what they say. Standard Webhooks 1.0, with HMAC-SHA256. Pure.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hmac
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from reservation_forwarder_client.records import Reservation
from reservation_forwarder_client.wire import Malformed, members_of, read

TOLERANCE_SECONDS: Final = 300
_PREFIX: Final = "whsec_"
_VERSION: Final = "v1"


class WebhookInvalid(ValueError):
    """The delivery is not one that the holder of the secret signed, or not of now. Answer it with 400, and do nothing."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """A delivery that was verified. `id` stays the same when the event is delivered again: pass over what you have seen."""

    id: str
    type: str
    timestamp: datetime
    data: Mapping[str, Any]

    @property
    def reservation(self) -> Reservation | None:
        """The record that the event is about; None for an event about something else. Raises `WebhookInvalid` where it is
        not as the contract has it."""
        record = self.data.get("reservation")
        try:
            return read(Reservation, record) if isinstance(record, Mapping) else None
        except Malformed as error:
            raise WebhookInvalid(f"its reservation is not of the contract: {error}") from error


def verify_webhook(
    payload: bytes,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> WebhookEvent:
    """The event in `payload`, the body exactly as received, byte for byte. `secrets`: the endpoint's `whsec_…`, or several
    while one replaces another. `now`: unix time; None is the machine's.

    Raises `WebhookInvalid` unless one of the signatures is of one of the secrets, and the delivery was sent within
    `tolerance_seconds` of now; `ValueError` for a secret that is none. Which signature is right does not show in the time taken.
    """
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    said = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, sent_at, signatures = (said[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise WebhookInvalid(f"the header {missing} is missing") from None
    signed = f"{message_id}.{sent_at}.".encode(errors="surrogatepass") + payload
    if not _is_signed(signed, signatures, keys):
        raise WebhookInvalid("no signature is of this secret")
    _require_recent(sent_at, time.time() if now is None else now, tolerance_seconds)
    return _event(message_id, payload)


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("a webhook secret is `whsec_` and base64") from error
    if not key:
        raise ValueError("a webhook secret is not empty")
    return key


def _is_signed(signed: bytes, signatures: str, keys: Sequence[bytes]) -> bool:
    """Every pair is compared: nothing ends early."""
    expected = [base64.b64encode(hmac.digest(key, signed, "sha256")) for key in keys]
    versions = (one.partition(",") for one in signatures.split())
    given = [value.encode(errors="surrogatepass") for version, _, value in versions if version == _VERSION]
    return any([hmac.compare_digest(one, other) for one in expected for other in given])  # noqa: C419 - all of them


def _require_recent(sent_at: str, now: float, tolerance_seconds: float) -> None:
    if not (sent_at.isascii() and sent_at.isdecimal()):
        raise WebhookInvalid("its timestamp is no unix time")
    if abs(now - float(sent_at)) > tolerance_seconds:
        raise WebhookInvalid(
            "it was not sent just now: an old delivery that somebody repeats, or a clock that is wrong"
        )


def _event(message_id: str, payload: bytes) -> WebhookEvent:
    try:
        members = members_of(payload)
        return read(WebhookEvent, {**members, "id": message_id})
    except Malformed as error:
        raise WebhookInvalid(f"its body is not of the contract: {error}") from error
