"""When a submission is an earlier one sent again, though no Idempotency-Key says so, and when it only looks like one. Pure.

Two submissions of one account are the same when every field of their bodies is equal and the second came within the account's
window. With a `transactionId` they are the same at any time, when transaction, stay, guest and price are equal. Two that have an
Idempotency-Key each are two. A submission with the stay and the guest of an earlier one, but another body, is one of its own; both
the caller and the property learn about the other one (`similarTo`).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from forwarder.reservation.outcome import Status
from forwarder.reservation.request import GeneralRequest, Operation
from forwarder.reservation.usual import AnyRequest
from forwarder.reservation.value import json_text, value

DEFAULT_WINDOW_SECONDS: Final = 300
MAX_WINDOW_SECONDS: Final = 24 * 60 * 60
MAX_SIMILAR: Final = 16  # the maximum number of similar submissions to name
CONFLICTING_BODY: Final = "conflicting_body"  # the outcome of a second body under one idempotency key: it is not made

POSSIBLE: Final = frozenset({Status.PENDING, Status.IN_DOUBT, Status.CONFIRMED, Status.CANCELLED})
"""Statuses in which a reservation was or may yet be made. A rejected or failed submission may be submitted again."""

_UNDECIDED: Final = frozenset({Status.PENDING, Status.IN_DOUBT})


@value(frozen=True, slots=True)
class NaturalKey:
    """MACs of a submission's content, by which duplicates are recognised.

    `same`: equal for duplicates: of the whole body or, with a transaction, of transaction, stay, guest and price. `stay`: of
    property, days and guest. Both are None in messages of releases before 0.2, which are compared by `key`: of stay, guest,
    price and transaction. `transaction`: of the `transactionId` alone, if there is one. `window_seconds`: how long a duplicate
    without a transaction is recognised. `keyed`: it came with an Idempotency-Key.
    """

    key: str
    transaction: str | None = None
    window_seconds: int = 0
    keyed: bool = False
    same: str | None = None
    stay: str | None = None


@value(frozen=True, slots=True)
class Earlier:
    """An earlier submission, or one that has a row already. `natural_key`, `transaction`, `keyed`, `same` and `stay`: as in
    `NaturalKey`. `cancel_requested_at`: None also if its cancellation failed."""

    request_id: str
    natural_key: str | None
    transaction: str | None
    keyed: bool
    status: Status
    accepted_at: datetime
    cancel_requested_at: datetime | None = None
    same: str | None = None
    stay: str | None = None

    def is_repeated_by(self, natural: NaturalKey, accepted_at: datetime) -> bool:
        """Whether a submission accepted at `accepted_at` is this one sent again."""
        if not self._asks_the_same(natural) or (self.keyed and natural.keyed) or not self.stands_for(accepted_at):
            return False
        if natural.transaction is not None or self.status in _UNDECIDED:
            return True
        return abs(accepted_at - self.accepted_at) < timedelta(seconds=natural.window_seconds)

    def is_similar_to(self, natural: NaturalKey, accepted_at: datetime) -> bool:
        """Whether it has the stay and guest of a submission accepted at `accepted_at`, and both may exist."""
        return natural.stay is not None and self.stay == natural.stay and self.stands_for(accepted_at)

    def replaces(self, failed: NaturalKey, failed_at: datetime) -> bool:
        """Whether a submission that failed at `failed_at` must not be made any more because of this one: it is a duplicate,
        however much later, or it was sent in its place, for the same room, guest and price."""
        if (self.keyed and failed.keyed) or not stands(self.status, self.cancel_requested_at, None):
            return False
        return self._asks_the_same(failed) or (self.natural_key == failed.key and self.accepted_at >= failed_at)

    def stands_for(self, accepted_at: datetime) -> bool:
        """Whether the sender of another one, accepted at `accepted_at`, could expect a reservation from this one."""
        return stands(self.status, self.cancel_requested_at, accepted_at)

    def _asks_the_same(self, natural: NaturalKey) -> bool:
        if self.same is None or natural.same is None:
            return self.natural_key == natural.key
        return self.same == natural.same


def stands(status: Status, cancel_requested_at: datetime | None, at: datetime | None) -> bool:
    """Whether a submission of this status could have a reservation `at` that time; None: now."""
    if status not in POSSIBLE:
        return False
    if cancel_requested_at is None:
        return status is not Status.CANCELLED
    return at is not None and cancel_requested_at > at


class Contents(NamedTuple):
    """What of a request is compared, as bytes to hash. `booking`: stay, guest, price and transaction, as releases before 0.2
    compare them; excludes the card. `same`: what duplicates share. `stay`: property, days and guest; None if it names no guest."""

    booking: bytes
    same: bytes
    stay: bytes | None


def contents_of(operation: Operation, request: AnyRequest, body: bytes, card: bytes) -> Contents:
    """`body`: the request in canonical form; `card`: distinguishes its card from others."""
    property_id, transaction = str(request.property_id), transaction_of(request)
    room = property_id if request.room_id is None else str(request.room_id)
    days = f"{request.arrival_date.isoformat()}\0{request.departure_date.isoformat()}"
    given, price, currency = request.guest, request.total_price, request.currency or ""
    names = _BETWEEN.join((given.name or "", given.first_name or "", given.last_name or "", given.email or ""))
    guest = " ".join(names.casefold().split())
    phone = "" if given.phone is None else "".join(str(given.phone).split())
    amount = "" if price is None else str(price.normalize())
    if transaction:
        same = _joined("booking", transaction, property_id, room, days, guest, amount, currency)
    else:
        # The same price in any notation, and the same guest in any spelling of name, address and number.
        fields: dict[str, Any] = from_json(body)
        if amount:
            fields["totalPrice"] = amount
        fields["guest"] = {name: _respelled(name, text) for name, text in fields.get("guest", {}).items()}
        same = _joined("body", operation) + b"\0" + card + b"\0" + json_text(fields)
    return Contents(
        _joined(operation, property_id, room, days, guest, phone, amount, currency, transaction),
        same,
        _joined("stay", property_id, days, guest) if guest.strip("\0 ") else None,
    )


def differing_fields(one: bytes, other: bytes) -> Sequence[str]:
    """The JSON Pointers of the fields in which two requests differ, both as JSON objects."""
    return sorted(_differences("", from_json(one), from_json(other)))


def _differences(pointer: str, one: Any, other: Any) -> Sequence[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        return [each for name in names for each in _differences(f"{pointer}/{name}", one.get(name), other.get(name))]
    return [] if one == other or str(one) == str(other) else [pointer]


def transaction_of(request: AnyRequest) -> str:
    """The request's transaction; empty if there is none."""
    given = None if isinstance(request, GeneralRequest) else request.transaction_id
    return "" if given is None else given.strip()


_BETWEEN: Final = " \0 "  # no text of a request has this character
_NAMES: Final = frozenset({"name", "firstName", "lastName", "email"})


def _respelled(name: str, given: Any) -> Any:
    if name == "phone":
        return "".join(each for each in str(given) if each.isdecimal()).lstrip("0")
    return " ".join(given.casefold().split()) if name in _NAMES else given


def _joined(*parts: str) -> bytes:
    return "\0".join(parts).encode()
