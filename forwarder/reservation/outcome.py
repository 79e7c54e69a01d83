"""What a push came to, decided once at the PMS seam; and the states that a submission goes through.

PENDING → CONFIRMED | REJECTED | FAILED | IN_DOUBT;  IN_DOUBT → CONFIRMED | REJECTED | PENDING;  FAILED → PENDING on replay;
CONFIRMED → CANCELLED;  PENDING | IN_DOUBT → CANCELLED where it was surely not made and is not to be any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.value import value


class Status(StrEnum):
    """Where a submission stands."""

    PENDING = "PENDING"
    CONFIRMED = "CONFIRMED"
    REJECTED = "REJECTED"
    FAILED = "FAILED"
    IN_DOUBT = "IN_DOUBT"
    CANCELLED = "CANCELLED"


@value(frozen=True, slots=True)
class Confirmed:
    """The PMS has the reservation. `record` holds what of section 2.5's record the PMS gave, by its field names."""

    pms_reservation_id: str
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rule, or the PMS, said no. Asking again would bring the same answer."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class Deferred:
    """Surely not done: try again, no earlier than `retry_after_seconds` from now where the PMS said so.

    `reason` is a stable snake_case code, `detail` one sentence for a person; neither holds guest or card data.
    """

    reason: str
    detail: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class InDoubt:
    """May have been done: bytes were sent and no answer that we understand came back. Fields as in `Deferred`."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A look-up found no reservation with our reference."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The PMS no longer holds the reservation: it was cancelled now or before, or is not there."""


Outcome = Confirmed | Rejected | Deferred | InDoubt
"""What a create came to."""

LookupOutcome = Confirmed | Absent | Deferred
"""What a look-up by our reference came to."""

CancelOutcome = Cancelled | Rejected | Deferred
"""What a cancellation came to. It may be asked for any number of times, so that a doubt about one is only a delay."""
