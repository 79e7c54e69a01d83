"""What the worker and the store hand to each other: submissions as they arrive, as work, and as they ended. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from typing import Final as Constant

from forwarder.reservation.cancellation import CancellationRequest
from forwarder.reservation.outcome import Status
from forwarder.reservation.result import ResultEvent
from forwarder.reservation.submission import Submission
from forwarder.reservation.value import value

UNKNOWN_SAFEGUARDS: Constant = "unknown"
"""What a push carries of which its worker did not say: none that anybody could rely on."""


@value(frozen=True, slots=True)
class Attempt:
    """One try at a submission: `action` is what was done (`create`, `find`, `cancel`), `outcome` what it came to (`confirmed`,
    `rejected`, `deferred`, `in_doubt`, `absent`, `cancelled`), `reason` and `detail` what was said."""

    number: int
    action: str
    started_at: str
    duration_ms: int
    outcome: str
    reason: str | None = None
    detail: str | None = None


@value(frozen=True, slots=True)
class Arrival:
    """A submission as the worker takes it in: `partition` is where it came from, `deadline_at` when trying ends.

    `held`: the worker has room for it now and takes the lease with it; otherwise it waits in the store, due at once.
    `offset` and `timestamp_ms` (UTC, since 1970) are where and when the log had it. `replay_of`: it is a dead letter that was put
    back, of the failure with that revision. `size`: bytes of the message that brought it; 0 where nobody counted them. `request`:
    the JSON text of the submission's reservation, where it is known. `safeguards`: what its push carries, as in `Work`.
    """

    submission: Submission
    partition: int
    deadline_at: datetime
    held: bool
    offset: int = 0
    timestamp_ms: int = 0
    replay_of: int | None = None
    size: int = 0
    request: bytes | None = None
    safeguards: str | None = UNKNOWN_SAFEGUARDS


@dataclass(frozen=True, slots=True)
class CancellationArrival:
    """A cancellation as the worker takes it in. `deadline_at`: until when the PMS is asked for it, where it can be asked now."""

    request: CancellationRequest
    deadline_at: datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """That a submission is to be cancelled: when that was asked for (ISO 8601), and what was said with it."""

    requested_at: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """What the PMS made of a submission, and its record of section 2.5."""

    pms_reservation_id: str
    record: Mapping[str, Any]


@value(frozen=True, slots=True)
class Work:
    """A submission to be worked on, leased to a worker. `doubtful`: an earlier push may have been made, so look before pushing.

    `safeguards`: what pushes carry for as long as this lease lasts, by which they could be looked into afterwards; empty for none,
    and then each is marked by `mark_pushing` before its first byte; None where nothing can be pushed. `doubt`: what the push that
    may have been made carried. `takeovers` counts the workers that it was taken over from. `pushing`: an intent to push it was
    made durable by `mark_pushing`, and what became of that is not known. `status` is PENDING, or IN_DOUBT where it is only to be
    looked for, or CONFIRMED where it is to be cancelled. `tries` counts those since it became pending, or could be cancelled;
    `offset` and `timestamp_ms` are those of its `Arrival`. `cancel`: it is to be cancelled. `made`: what was made of it, if
    CONFIRMED. `held_by`: the id of the worker that it was leased to; one that lost its lease goes on under another. `size`: bytes
    of its request and its sealed card as texts, or a little more; 0 where nobody counted them.
    """

    id: int
    submission: Submission
    partition: int
    created_at: str
    deadline_at: datetime
    attempts: tuple[Attempt, ...]
    revision: int
    doubtful: bool
    pushing: bool = False
    status: Status = Status.PENDING
    tries: int = 0
    offset: int = 0
    timestamp_ms: int = 0
    cancel: Asked | None = None
    made: Made | None = None
    held_by: str = ""
    size: int = 0
    safeguards: str | None = None
    doubt: str = ""
    takeovers: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What is to be put on the dead-letter topic: a message of the requests topic, with headers that say why."""

    key: str
    value: str
    headers: Mapping[str, str]


@value(frozen=True, slots=True)
class Final:
    """How a submission ended, to be recorded with its event in one step.

    `look_at`: when to look for it again, of one that is IN_DOUBT; None where that is left to an operator. `letter` goes out with
    the event. `cancelled_at`: when it was cancelled. `cancel_problem`: why that came to nothing, of one that stays CONFIRMED.
    `cancel_by`: until when the PMS is asked for the cancellation of one that is CONFIRMED only now, if it waits for that. `doubt`:
    of one that is IN_DOUBT, what the push that may have been made carried.
    """

    work_id: int
    status: Status
    attempts: Sequence[Attempt]
    updated_at: datetime
    event: ResultEvent
    pms_reservation_id: str | None = None
    problem: Mapping[str, Any] | None = None
    look_at: datetime | None = None
    letter: DeadLetter | None = None
    cancelled_at: datetime | None = None
    cancel_problem: Mapping[str, Any] | None = None
    cancel_by: datetime | None = None
    doubt: str = ""

    @property
    def record(self) -> Mapping[str, Any]:
        """The composed record of section 2.5, as its event tells of it."""
        record: Mapping[str, Any] = self.event.data["reservation"]
        return record


@value(frozen=True, slots=True)
class Postponed:
    """A submission that is to be tried again: its lease is given up, it is due at `due_at`; one that is IN_DOUBT and that nobody
    is to look for any more, never. `doubt`: of one that is doubtful, what the push that may have been made carried."""

    work_id: int
    attempts: Sequence[Attempt]
    updated_at: datetime
    due_at: datetime | None
    doubtful: bool
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Pulse:
    """A lease holder's sign of life: `beat` changes with each renewal, the lease lasts `lease_seconds` from one to the next."""

    worker_id: str
    beat: int
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is due and not held by anyone: how much, and since when the oldest has been due."""

    due: int
    oldest_due_at: datetime | None


@value(frozen=True, slots=True)
class OutboxEvent:
    """An event that was recorded and not yet known to be published, and its dead letter. `id` gives their order.

    `in_turn`: those of its submission before it are known to be published.
    """

    id: int
    event: ResultEvent
    letter: DeadLetter | None = None
    in_turn: bool = False
