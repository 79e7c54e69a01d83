"""When a submission is an earlier one sent again, though no Idempotency-Key says so. Pure.

Two submissions of one account with the same natural key ask for the same thing: the same stay, guest and price. Within the
account's window that is one reservation sent twice. With a `transactionId` it is that at any time, and another reservation under
the same transaction is refused. Whoever really wants two gives each a key of its own.
"""

from datetime import datetime, timedelta
from typing import Final

from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import GeneralRequest, Operation
from forwarder.reservation.usual import AnyRequest
from forwarder.reservation.value import value

DEFAULT_WINDOW_SECONDS: Final = 300
MAX_WINDOW_SECONDS: Final = 24 * 60 * 60

POSSIBLE: Final = frozenset({Status.PENDING, Status.IN_DOUBT, Status.CONFIRMED, Status.CANCELLED})
"""Of which a reservation came or may come. What was refused or failed may be asked for again."""

_UNDECIDED: Final = frozenset({Status.PENDING, Status.IN_DOUBT})


@value(frozen=True, slots=True)
class NaturalKey:
    """By what a submission is recognised. `key`: a MAC of what it asks for, its `transactionId` included; `transaction`: one of its
    `transactionId` alone, where it has one. `window_seconds`: for how long it is the same one without a transaction. `keyed`: it
    came with an Idempotency-Key."""

    key: str
    transaction: str | None = None
    window_seconds: int = 0
    keyed: bool = False


@value(frozen=True, slots=True)
class Earlier:
    """A submission that came before. `natural_key`, `transaction` and `keyed`: as in `NaturalKey`."""

    request_id: str
    natural_key: str | None
    transaction: str | None
    keyed: bool
    status: Status
    accepted_at: datetime
    cancel_requested_at: datetime | None = None

    def is_repeated_by(self, natural: NaturalKey, accepted_at: datetime) -> bool:
        """Whether a submission that was accepted at `accepted_at` is this one sent again."""
        if self.natural_key != natural.key or not self._counts_for(natural, accepted_at):
            return False
        if natural.transaction is not None or self.status in _UNDECIDED:
            return True
        return abs(accepted_at - self.accepted_at) < timedelta(seconds=natural.window_seconds)

    def has_its_transaction(self, natural: NaturalKey, accepted_at: datetime) -> bool:
        """Whether a submission that was accepted at `accepted_at` asks for something else in this one's transaction."""
        shared = self.transaction is not None and self.transaction == natural.transaction
        return shared and self.natural_key != natural.key and self._counts_for(natural, accepted_at)

    def _counts_for(self, natural: NaturalKey, accepted_at: datetime) -> bool:
        """Two with keys are two. What was to be cancelled already may be asked for again."""
        return not (self.keyed and natural.keyed) and stands(self.status, self.cancel_requested_at, accepted_at)


def stands(status: Status, cancel_requested_at: datetime | None, at: datetime) -> bool:
    """Whether whoever sent a submission of this status could expect a reservation of it `at` that moment."""
    if status not in POSSIBLE:
        return False
    return status is not Status.CANCELLED if cancel_requested_at is None else cancel_requested_at > at


def transaction_reused(request_id: str) -> Problem:
    """The refusal of a submission in whose transaction `request_id` asked for something else."""
    return requests.TRANSACTION_REUSED.problem(
        f"The submission {request_id} has this transactionId and asks for another reservation. Use a new transactionId, or submit "
        "both with an Idempotency-Key of its own.",
        extra={"transactionOf": request_id},
    )


def content_of(operation: Operation, request: AnyRequest) -> bytes:
    """What tells a request from others, as bytes to be hashed: how names, addresses, numbers and identifiers are written does not
    matter. No card."""
    guest, price = request.guest, request.total_price
    room = request.property_id if request.room_id is None else request.room_id
    names = _BETWEEN.join((guest.name or "", guest.first_name or "", guest.last_name or "", guest.email or ""))
    parts = (
        operation,
        str(request.property_id),
        str(room),
        request.arrival_date.isoformat(),
        request.departure_date.isoformat(),
        " ".join(names.casefold().split()),
        "" if guest.phone is None else "".join(str(guest.phone).split()),
        "" if price is None else str(price.normalize()),
        request.currency or "",
        transaction_of(request),
    )
    return "\0".join(parts).encode()


_BETWEEN: Final = " \0 "
"""No text of a request has this character."""


def transaction_of(request: AnyRequest) -> str:
    """The transaction that the request names; empty where it names none."""
    given = None if isinstance(request, GeneralRequest) else request.transaction_id
    return "" if given is None else given.strip()
