"""The outcome of a push, decided once at the PMS seam; the states that a submission goes through; and its cancellation. Pure.

PENDING → CONFIRMED | REJECTED | FAILED | IN_DOUBT;  IN_DOUBT → CONFIRMED | REJECTED | PENDING;  FAILED → PENDING on replay;
CONFIRMED → CANCELLED;  PENDING | IN_DOUBT → CANCELLED if it was certainly not made and is no longer wanted.

A cancellation is REQUESTED → DONE      the reservation is CANCELLED
                 → REFUSED              the PMS said no: the reservation stays CONFIRMED      may be asked for again
                 → FAILED               the PMS could not be asked in time: as before         may be asked for again
                 → NOT_NEEDED           nothing was made: it ended REJECTED or FAILED
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, assert_never

from pydantic import BaseModel, ConfigDict, Field

from forwarder.reservation import problems as catalogue
from forwarder.reservation.fast import value
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import NO_NUL


class Status(StrEnum):
    """The state of a submission."""

    PENDING = "PENDING"
    CONFIRMED = "CONFIRMED"
    REJECTED = "REJECTED"
    FAILED = "FAILED"
    IN_DOUBT = "IN_DOUBT"
    CANCELLED = "CANCELLED"

    @property
    def success(self) -> bool:
        """`success` in a response: false only once it is certain that no reservation was made. Pending and in-doubt submissions
        are no failures: a caller who took one for a failure would book again elsewhere."""
        return self is not Status.REJECTED and self is not Status.FAILED


LISTED_STATUSES: Final = frozenset(Status) - {Status.REJECTED, Status.FAILED}
"""The default statuses of a list, made or in progress: the others have no price to sum and no nights to block."""


@value(frozen=True, slots=True)
class Confirmed:
    """The PMS has the reservation. `record` holds the fields of section 2.5's record that the PMS gave. `named`: the response named
    our reference, so that it cannot be another reservation. `doubles`: the ids of others that the PMS shows under it."""

    pms_reservation_id: str
    record: Mapping[str, Any] = field(default_factory=dict)
    named: bool = field(default=False, compare=False)
    doubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rule, or the PMS, refused. Repeating the request would get the same response."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class Deferred:
    """Certainly not done: try again, no earlier than `retry_after_seconds` from now if the PMS asked for that. `reason` is a stable
    snake_case code, `detail` one sentence for a person; neither holds guest or card data."""

    reason: str
    detail: str
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Possibly done: bytes were sent, and no intelligible response came back. Fields as in `Deferred`. `made`: the response said
    that it was made, or that the PMS has it already. `pms_reservation_id`, `status`: the id and the HTTP status that it gave."""

    reason: str
    detail: str
    retry_after_seconds: float | None = None
    made: bool = field(default=False, compare=False)
    pms_reservation_id: str | None = field(default=None, compare=False)
    status: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Absent:
    """A look-up found no reservation with our reference."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The PMS no longer holds the reservation: it was cancelled now or before, or is not there."""


Outcome = Confirmed | Rejected | Deferred | InDoubt  # the outcome of a create
LookupOutcome = Confirmed | Absent | Deferred  # the outcome of a look-up by our reference
# Of a cancellation, which may be repeated: an ambiguous one is only a delay.
CancelOutcome = Cancelled | Rejected | Deferred
AnyOutcome = Outcome | LookupOutcome | CancelOutcome


def describe(outcome: AnyOutcome) -> tuple[str, str | None, str | None]:
    """An outcome's name, reason and detail, as attempts and log lines show them."""
    match outcome:
        case Confirmed():
            return "confirmed", None, None
        case Absent():
            return "absent", None, None
        case Cancelled():
            return "cancelled", None, None
        case Rejected(problem):
            return "rejected", problem.code, problem.detail
        case Deferred(reason, detail):
            return "deferred", reason, detail
        case InDoubt(reason, detail):
            return "in_doubt", reason, detail
        case _:
            assert_never(outcome)


# --- failures, by whose classes operators select dead letters ---

FAILURE_CLASS: Final = "dlt-failure-class"  # the header of a dead letter that holds its class
INTERNAL_ERROR: Final = "internal_error"  # the reason, and the class, of an unexpected exception that was contained
UNDECODABLE: Final = "undecodable"
FORGED: Final = "forged"
EXPIRED: Final = "expired"
OTHER: Final = "other"
_CLASSES: Final[Mapping[str, Sequence[str]]] = {
    EXPIRED: ("deadline_passed", "not_made"),
    "throttled": ("pms_throttled",),
    "unreachable": "pms_unreachable pms_connect_timed_out no_connection_free push_timed_out pms_not_trusted".split(),
    "unavailable": (
        "pms_unavailable pms_put_off pms_timed_out_reading pms_timed_out pms_connection_lost pms_failed".split()
    ),
    "card_gone": ("card_gone", "card_code_gone"),
    "misconfigured": (
        "cannot_open card_key_missing card_not_bound bad_options mapping_does_not_fit unknown_kind pms_address_invalid "
        "pms_credential_invalid pms_not_encrypted pms_payment_not_possible pms_redirected pms_refused_certificate "
        "pms_refused_in_words pms_refused_request pms_scope_too_small pms_unauthorized".split()
    ),
    INTERNAL_ERROR: (INTERNAL_ERROR,),
}
FAILURE_CLASSES: Final = (*_CLASSES, UNDECODABLE, FORGED, OTHER)
"""`expired`: its deadline came while its account was paused, or the queue too long. `misconfigured`: the account's settings need
an operator. `forged`: no process of this deployment signed it as it is. `internal_error`: an unexpected exception, contained."""

SET_ASIDE: Final = (FORGED, INTERNAL_ERROR, UNDECODABLE)
"""The classes of messages that workers set aside before they became submissions."""

EXPIRED_REASONS: Final = _CLASSES[EXPIRED]


def class_of(reason: str) -> str:
    return next((name for name, reasons in _CLASSES.items() if reason in reasons), OTHER)


# --- cancelling a submission ---

MAX_REASON: Final = 1000


class CancellationStatus(StrEnum):
    """The state of a requested cancellation."""

    REQUESTED = "REQUESTED"
    DONE = "DONE"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    NOT_NEEDED = "NOT_NEEDED"


class CancellationBody(BaseModel):
    """The body of a cancellation request. Unknown fields are dropped."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: Annotated[str, Field(max_length=MAX_REASON, pattern=NO_NUL)] | None = None


@dataclass(frozen=True, slots=True)
class CancellationRequest:
    """A request to cancel a submission, as it travels from the ingress to the worker. `revision`: of the submission's last event
    when this was requested, 0 before the first one or if unknown. After a cancellation that failed, only a request made with
    knowledge of that failure counts as a new one; a redelivered one does not. `partition`: the submission's partition on the
    requests topic, if known; the worker that ingests it there has the submission."""

    request_id: str
    account_id: str
    key: str
    requested_at: datetime
    reason: str | None = None
    revision: int = 0
    trace: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A cancellation and its status. `requested_at` is ISO 8601; `problem` says why it failed."""

    status: CancellationStatus
    requested_at: str
    reason: str | None = None
    problem: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        shown = {"status": self.status.value, "requestedAt": self.requested_at}
        return {**shown, "reason": self.reason, "problem": self.problem}


def cancellation_status(status: Status, problem: Mapping[str, Any] | None) -> CancellationStatus:
    """The cancellation's status, from the submission's `status`, and from the cancellation's own `problem` if it failed."""
    if problem is not None:
        failed = problem.get("code") == catalogue.CANCELLATION_FAILED.code
        return CancellationStatus.FAILED if failed else CancellationStatus.REFUSED
    match status:
        case Status.CANCELLED:
            return CancellationStatus.DONE
        case Status.REJECTED | Status.FAILED:
            return CancellationStatus.NOT_NEEDED
        case Status.PENDING | Status.CONFIRMED | Status.IN_DOUBT:
            return CancellationStatus.REQUESTED


def not_made(request_id: str, status: Status) -> Problem:
    """There is nothing to cancel."""
    return catalogue.NOT_MADE.problem(f"The submission ended {status.value}: nothing was made of it.", request_id)


def not_supported(request_id: str, kind: str) -> Problem:
    said = f"A PMS of kind {kind} takes no cancellations from here: cancel it there."
    return catalogue.CANCELLATION_NOT_SUPPORTED.problem(said, request_id)


def cancellation_failed(request_id: str, reason: str, detail: str) -> Problem:
    """The PMS did not carry it out in time; the last try failed with `reason`."""
    said = "The PMS could not be made to cancel it before the deadline. It may be asked for again."
    return catalogue.CANCELLATION_FAILED.problem(f"{said} Last: {reason}: {detail}", request_id)
