"""What became of a submission, as a closed union to `match`. Pure.

match submission.outcome:
    case Confirmed(record): …
    case Rejected(problem): …
"""

from dataclasses import dataclass

from reservation_forwarder_client.problems import Problem
from reservation_forwarder_client.records import Reservation, Status


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The PMS has it."""

    record: Reservation


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rule, or the PMS, said no. Nothing was made."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be delivered before its deadline. Nothing was made."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class InDoubt:
    """It may have been made: tell nobody that it was, and do not book it elsewhere. The service, or its operator, finds out."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It was cancelled, or never made because somebody asked for that in time."""

    record: Reservation


@dataclass(frozen=True, slots=True)
class OtherOutcome:
    """An outcome that a later contract has added."""

    status: str


Outcome = Confirmed | Rejected | Failed | InDoubt | Cancelled | OtherOutcome


def outcome_of(status: str, record: Reservation | None, problem: Problem | None) -> Outcome | None:
    """The outcome of a submission in this state; None without one, and if only the status is known, as from a receipt."""
    match status, record, problem:
        case Status.CONFIRMED, Reservation(), _:
            return Confirmed(record)
        case Status.CANCELLED, Reservation(), _:
            return Cancelled(record)
        case Status.REJECTED, _, Problem():
            return Rejected(problem)
        case Status.FAILED, _, Problem():
            return Failed(problem)
        case Status.IN_DOUBT, _, Problem():
            return InDoubt(problem)
    return None if status in _KNOWN else OtherOutcome(status)


_KNOWN = {
    Status.PENDING,
    Status.CONFIRMED,
    Status.REJECTED,
    Status.FAILED,
    Status.IN_DOUBT,
    Status.CANCELLED,
}
