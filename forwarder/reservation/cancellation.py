"""Cancelling a submission: the request, its status, and why it may fail. Pure.

REQUESTED → DONE         the reservation is CANCELLED
          → REFUSED      the PMS said no: the reservation stays CONFIRMED      may be asked for again
          → FAILED       the PMS could not be asked in time: as before         may be asked for again
          → NOT_NEEDED   nothing was made: it ended REJECTED or FAILED
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import catalogue
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.request import NO_NUL

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
    """A request to cancel a submission, as it travels from the ingress to the worker.

    `revision`: of the submission's last event when this was requested, 0 before the first one or if unknown. After a
    cancellation that failed, only a request made with knowledge of that failure counts as a new one; a redelivered one does
    not. `partition`: the submission's partition on the requests topic, if known; the worker that ingests it there has the
    submission.
    """

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
        status, problem = self.status.value, self.problem
        return {"status": status, "requestedAt": self.requested_at, "reason": self.reason, "problem": problem}


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
    said = f"The submission ended {status.value}: nothing was made of it."
    return catalogue.NOT_MADE.problem(said, request_id)


def not_supported(request_id: str, kind: str) -> Problem:
    """The kind of PMS does not support cancellations."""
    said = f"A PMS of kind {kind} takes no cancellations from here: cancel it there."
    return catalogue.CANCELLATION_NOT_SUPPORTED.problem(said, request_id)


def cancellation_failed(request_id: str, reason: str, detail: str) -> Problem:
    """The PMS did not carry it out in time; the last try failed with `reason`."""
    said = "The PMS could not be made to cancel it before the deadline. It may be asked for again."
    return catalogue.CANCELLATION_FAILED.problem(f"{said} Last: {reason}: {detail}", request_id)
