"""What the worker and the store exchange: submissions as they arrive, as leased work, and with their outcome. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from forwarder.reservation.cancellation import CancellationRequest
from forwarder.reservation.evidence import NOTHING_SENT, Evidence
from forwarder.reservation.outcome import Status
from forwarder.reservation.record import ResultEvent, record_id_of
from forwarder.reservation.request import SealedCard
from forwarder.reservation.submission import Submission
from forwarder.reservation.value import value

FAILURE_CLASS: Final = "dlt-failure-class"
"""The header of a dead letter that says, in a word of a closed set, why it was set aside."""

UNKNOWN: Final = "{}"
"""The target of a push whose worker did not name any: nobody can look into it afterwards."""


@value(frozen=True, slots=True)
class Attempt:
    """One try at a submission: `action` is what was done (`create`, `find`, `cancel`), `outcome` how it ended (`confirmed`,
    `rejected`, `deferred`, `in_doubt`, `absent`, `cancelled`), `reason` and `detail` what the PMS or the worker said."""

    number: int
    action: str
    started_at: str
    duration_ms: int
    outcome: str
    reason: str | None = None
    detail: str | None = None


@value(frozen=True, slots=True)
class CardKey:
    """The keys of a row's card, each wrapped by the secret `secret_id`: of the security code, None where it has none or that is
    gone, and of the rest. Of no use from `expires_at` on. `sealing_key`: it has none of its own yet, because its card is still
    sealed to the topic's key of that id; `secret_id` and `number_key` are empty then."""

    request_id: str
    secret_id: str
    number_key: str
    code_key: str | None
    expires_at: datetime
    sealing_key: str | None = None


@value(frozen=True, slots=True)
class KeptCard:
    """A row's card as it is kept, with as much as sealing it anew needs."""

    request_id: str
    account_id: str
    card: SealedCard
    expires_at: datetime


@value(frozen=True, slots=True)
class Arrival:
    """A submission as the worker ingests it.

    `partition`, `offset` and `timestamp_ms` (UTC, since 1970): where and when the log had it.
    `deadline_at`: when trying ends.
    `held`: the worker has room for it now and leases it at once; otherwise it waits in the store, due at once.
    `replay_of`: it is a dead letter that was put back, of the failure with that revision.
    `size`: bytes of the message that brought it; 0 where nobody counted them.
    `request`: the JSON text of its reservation, where known.
    `target`: as in `Work`.
    `card_key`: kept with the row, if it is new.
    `record_ids_taken`: how many ids that its record would have had are those of others.
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
    target: str | None = UNKNOWN
    card_key: CardKey | None = None
    record_ids_taken: int = 0

    @property
    def record_id(self) -> int:
        return record_id_of(self.submission.request_id, taken=self.record_ids_taken)


@dataclass(frozen=True, slots=True)
class CancellationArrival:
    """A cancellation as the worker ingests it. `deadline_at`: until when the PMS is asked for it, if it can be asked now."""

    request: CancellationRequest
    deadline_at: datetime


@dataclass(frozen=True, slots=True)
class NotedOn:
    """The row that a cancellation is noted on: its submission, its partition, and the worker that holds it, if one does."""

    request_id: str
    partition: int
    held_by: str | None


@dataclass(frozen=True, slots=True)
class NotedCancellation:
    """The cancellation noted on a submission: when it was requested (ISO 8601), and why."""

    requested_at: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PmsReservation:
    """The reservation that the PMS made of a submission, and its record of section 2.5."""

    pms_reservation_id: str
    record: Mapping[str, Any]


@value(frozen=True, slots=True)
class Work:
    """A submission to be worked on, leased to a worker.

    `id`: the row's. `record_id`: its record's, by which callers know it.
    `status`: PENDING; or IN_DOUBT where it is only to be looked up; or CONFIRMED where it is to be cancelled.
    `evidence`: what is known of earlier pushes.
    `target`: where pushes under this lease go and what they carry, so that they can be looked into afterwards. Empty where they
    carry nothing; then each push is marked by `mark_pushing` before its first byte. None where nothing is to be pushed.
    `pushing`: the intent to push was made durable by `mark_pushing`, and its end is not known.
    `takeovers`: how many workers it was taken over from.
    `tries`: how many since it became pending, or could be cancelled.
    `partition`, `offset`, `timestamp_ms`: those of its `Arrival`.
    `cancellation`: set where it is to be cancelled.
    `pms_reservation`: set where it is CONFIRMED.
    `leased_by`: the worker id it was leased to; a worker that lost its lease goes on under another id.
    `size`: bytes of its request and its sealed card as texts, or a little more; 0 where nobody counted them.
    `similar_to`: the request ids of others for the same stay and guest.
    `unreadable`: the row cannot be read. Only what it takes to end it is here, and its reservation is not.
    """

    id: int
    record_id: int
    submission: Submission
    partition: int
    created_at: str
    deadline_at: datetime
    attempts: tuple[Attempt, ...]
    revision: int
    evidence: Evidence = NOTHING_SENT
    pushing: bool = False
    status: Status = Status.PENDING
    tries: int = 0
    offset: int = 0
    timestamp_ms: int = 0
    cancellation: NotedCancellation | None = None
    pms_reservation: PmsReservation | None = None
    leased_by: str = ""
    size: int = 0
    target: str | None = None
    takeovers: int = 0
    similar_to: Sequence[str] = ()
    unreadable: bool = False

    @property
    def possibly_sent(self) -> bool:
        """Whether an earlier push may have made a reservation, so that nothing is created before that is settled."""
        return bool(self.evidence.lines) and bool(self.evidence.open)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A submission that turned out, as it was ingested, to be another one: that with the request id `duplicate_of`. `replayed`: it
    is a dead letter that was put back, and stays FAILED, because the other was sent in its place."""

    submission: Submission
    duplicate_of: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class ConflictingBody:
    """A submission that was not made, because another body came before under its idempotency key."""

    submission: Submission


def nobody_told(_not_made: Duplicate | ConflictingBody) -> None:
    """For those who do not ask which submissions got no row."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What goes to the dead-letter topic: a message of the requests topic, with headers that say why."""

    key: str
    value: str
    headers: Mapping[str, str]

    @property
    def failure_class(self) -> str | None:
        """By which it is counted among those that stand."""
        return self.headers.get(FAILURE_CLASS)


@value(frozen=True, slots=True)
class Ended:
    """How a submission ended. Recorded together with its event.

    `look_at`: when to look it up again, if IN_DOUBT; None leaves that to an operator.
    `dead_letter`: published with the event.
    `cancelled_at`: when it was cancelled.
    `cancel_problem`: why the cancellation failed, of one that stays CONFIRMED.
    `cancel_by`: until when the PMS is asked for the cancellation, of one that is CONFIRMED only now and has one noted.
    `evidence`: what is known of its pushes. `doubles`: the ids of other reservations that the PMS shows under its reference.
    """

    work_id: int
    status: Status
    attempts: Sequence[Attempt]
    updated_at: datetime
    event: ResultEvent
    pms_reservation_id: str | None = None
    problem: Mapping[str, Any] | None = None
    look_at: datetime | None = None
    dead_letter: DeadLetter | None = None
    cancelled_at: datetime | None = None
    cancel_problem: Mapping[str, Any] | None = None
    cancel_by: datetime | None = None
    evidence: Evidence = NOTHING_SENT
    doubles: tuple[str, ...] = ()

    @property
    def record(self) -> Mapping[str, Any]:
        """The composed record of section 2.5, as its event has it."""
        record: Mapping[str, Any] = self.event.data["reservation"]
        return record


@value(frozen=True, slots=True)
class Postponed:
    """A submission that will be tried again: its lease ends, and it is due at `due_at`. That is None for one that is IN_DOUBT and
    that nobody is to look up any more. `evidence`: what is known of its pushes. `revision`: that of the row that was worked on;
    nothing is recorded of one that has another by now."""

    work_id: int
    attempts: Sequence[Attempt]
    updated_at: datetime
    due_at: datetime | None
    revision: int
    evidence: Evidence = NOTHING_SENT


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A lease holder's sign of life: `sequence` changes with each renewal; each renewal is good for `lease_seconds`."""

    worker_id: str
    sequence: int
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many rows are due and not leased, and since when the oldest has been due."""

    due: int
    oldest_due_at: datetime | None


class OutboxEvent(Struct, frozen=True):
    """An event that was recorded and is not known to be published, and its dead letter. Ids are in the order of recording.

    `in_turn`: the earlier events of its submission are known to be published. `faults`: how often it could not be published for a
    reason that nobody expected.
    """

    id: int
    event: ResultEvent
    dead_letter: DeadLetter | None = None
    in_turn: bool = False
    faults: int = 0
