"""A submission: its state, its attempts, its dry run. Names are those of the contract, in snake_case; fields unknown to this client
are in `raw`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reservation_forwarder_client.outcomes import Outcome, outcome_of
from reservation_forwarder_client.problems import ForwarderError, Problem
from reservation_forwarder_client.records import Reservation, Status


@dataclass(frozen=True, slots=True)
class Attempt:
    """One exchange with the PMS, or an operator's word."""

    number: int
    action: str
    started_at: datetime
    duration_ms: int
    outcome: str
    reason: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The state of a requested cancellation: `REQUESTED`, `DONE`, `REFUSED`, `FAILED` or `NOT_NEEDED`."""

    status: str
    requested_at: datetime | None = None
    reason: str | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class SubmissionWarning:
    """What of a request does not reach the PMS: where it is (a JSON Pointer), and why."""

    code: str
    pointer: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ConflictingBody:
    """Another body that came under the submission's idempotency key, and was not made."""

    accepted_at: datetime
    detail: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """What would come of a reservation, of which nothing was made: the requests that the PMS would be sent
    (`would_send["requests"]`), with the card masked, or what each rule that refuses it says. `account_paused`: what is submitted
    now waits until the account is resumed."""

    account_kind: str
    account_paused: bool
    would_send: Mapping[str, Any] | None = None
    refusals: tuple[Problem, ...] = ()
    warnings: tuple[SubmissionWarning, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Submission:
    """The state of a submission. If it was only accepted, it has no more than that; `ForwarderClient.submission` has everything.

    From the answer to `submit` or `submit_many`: `idempotency_key`, under which it was sent; `idempotent_replayed`, if that key
    was used before and nothing new was booked. From the answer to `submit`: `duplicate_of`, the earlier submission that it repeats
    without a key. `http_request_id` names the request in the service's log. `evidence`: what is known of pushes that may have
    made it. `similar_to`: the request ids of others for the same stay and guest, each a reservation of its own.
    """

    request_id: str
    status: str
    accepted_at: datetime | None = None
    updated_at: datetime | None = None
    reservation_id: int | None = None
    attempts: tuple[Attempt, ...] = ()
    problem: Problem | None = None
    record: Reservation | None = None
    warnings: tuple[SubmissionWarning, ...] = ()
    cancellation: Cancellation | None = None
    evidence: tuple[str, ...] = ()
    similar_to: tuple[str, ...] = ()
    conflicting_body: ConflictingBody | None = None
    status_url: str | None = None
    idempotency_key: str | None = None
    idempotent_replayed: bool = False
    duplicate_of: str | None = None
    http_request_id: str | None = field(default=None, compare=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def settled(self) -> bool:
        """It has an outcome."""
        return self.status != Status.PENDING

    @property
    def confirmed(self) -> bool:
        """The PMS has the reservation."""
        return self.status == Status.CONFIRMED

    @property
    def outcome(self) -> Outcome | None:
        """Its outcome; None while it is in progress, and if only its status is known."""
        return outcome_of(self.status, self.record, self.problem)


class OutcomeTimeout(ForwarderError, TimeoutError):
    """There was no outcome within the time. Nothing is lost: wait again, now or after a restart, by `submission.request_id`."""

    def __init__(self, submission: Submission, seconds: float) -> None:
        super().__init__(f"{submission.request_id} has no outcome after {seconds:g} seconds")
        self.submission = submission
