"""What the stages ask of the store, and nothing of how it is kept. Two ports: the worker records, the others read.

Errors: `StoreUnavailable` is the only one a caller has to expect; the SQL store translates its drivers' errors into it in one
place. Whatever raised it was either done whole or not at all.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from forwarder.reservation.cancellation import Cancellation, CancellationRequest
from forwarder.reservation.outcome import Status
from forwarder.reservation.result import ResultEvent
from forwarder.reservation.submission import Submission


class StoreUnavailable(Exception):
    """The store could not be reached or did not answer in time."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Arrival:
    """A submission as the worker takes it in: `partition` is where it came from, `deadline_at` when trying ends.

    `held`: the worker has room for it now and takes the lease with it; otherwise it waits in the store, due at once.
    `offset` and `timestamp_ms` (UTC, since 1970) are where and when the log had it. `replay_of`: it is a dead letter that was put
    back, of the failure with that revision.
    """

    submission: Submission
    partition: int
    deadline_at: datetime
    held: bool
    offset: int = 0
    timestamp_ms: int = 0
    replay_of: int | None = None


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


@dataclass(frozen=True, slots=True)
class Work:
    """A submission to be worked on, leased to a worker. `doubtful`: an earlier push may have been made, so look before pushing.

    `pushing`: an intent to push it was made durable by `mark_pushing`, and what became of that is not known. A doubtful row
    without it was not pushed by whoever marks before every push. `status` is PENDING, or IN_DOUBT where it is only to be looked
    for, or CONFIRMED where it is to be cancelled. `tries` counts those since it became pending, or could be cancelled; `offset`
    and `timestamp_ms` are those of its `Arrival`. `cancel`: it is to be cancelled. `made`: what was made of it, if CONFIRMED.
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


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What is to be put on the dead-letter topic: a message of the requests topic, with headers that say why."""

    key: str
    value: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Final:
    """How a submission ended, to be recorded with its event in one step. `record` is the composed record of section 2.5.

    `look_at`: when to look for it again, of one that is IN_DOUBT; None where that is left to an operator. `letter` goes out with
    the event. `cancelled_at`: when it was cancelled. `cancel_problem`: why that came to nothing, of one that stays CONFIRMED.
    `cancel_by`: until when the PMS is asked for the cancellation of one that is CONFIRMED only now, if it waits for that.
    """

    work_id: int
    status: Status
    attempts: Sequence[Attempt]
    updated_at: datetime
    record: Mapping[str, Any]
    event: ResultEvent
    pms_reservation_id: str | None = None
    problem: Mapping[str, Any] | None = None
    look_at: datetime | None = None
    letter: DeadLetter | None = None
    cancelled_at: datetime | None = None
    cancel_problem: Mapping[str, Any] | None = None
    cancel_by: datetime | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """A submission that is to be tried again: its lease is given up, it is due at `due_at`; one that is IN_DOUBT and that nobody
    is to look for any more, never."""

    work_id: int
    attempts: Sequence[Attempt]
    updated_at: datetime
    due_at: datetime | None
    doubtful: bool


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


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """An event that was recorded and not yet known to be published, and its dead letter. `id` gives their order.

    `in_turn`: those of its submission before it are known to be published.
    """

    id: int
    event: ResultEvent
    letter: DeadLetter | None = None
    in_turn: bool = False


class Recorder(Protocol):
    """The worker's side. Everything takes a batch; each call is one transaction.

    A worker is a lease holder by `worker_id`: it holds rows for as long as it renews, and what it records of a row that it no
    longer holds changes nothing. Before its first `renew`, and after its lease was taken over, it is given no rows: what it
    takes in waits. When `take_in` or `claim` raises, nothing is held by it, whatever the store may have done.
    """

    async def renew(self, worker_id: str, *, seconds: float) -> bool:
        """Hold this worker's lease for `seconds` more. False when it was taken over: it holds nothing any more."""
        ...

    async def leave(self, worker_id: str) -> None:
        """End this worker's lease: the next `take_over`, whoever's it is, frees what it still holds."""
        ...

    async def take_in(self, worker_id: str, arrivals: Sequence[Arrival], *, now: datetime) -> Sequence[Work]:
        """Insert as PENDING each submission that is not known yet; those of them that are `held`, as leased work. One that FAILED
        with the revision of `replay_of` becomes PENDING again, due at once. One whose cancellation came first is not held.

        Ids are given out in the order in which they become visible, so that a reader who has seen an id has missed none below.
        """
        ...

    async def request_cancellations(self, arrivals: Sequence[CancellationArrival], *, now: datetime) -> None:
        """Note on each submission that it is to be cancelled; whoever holds it goes on with what is under way.

        What was surely not sent has its deadline brought forward to `now`; what is CONFIRMED is due at once, to be cancelled. What
        is not known yet is noted as it is taken in, and then is not held. Changes nothing where it was asked for before, unless
        that came to nothing with the revision that the request names.
        """
        ...

    async def claim(
        self, worker_id: str, account_id: str, partitions: Collection[int], *, now: datetime, at_most: int
    ) -> Sequence[Work]:
        """Lease up to `at_most` rows of the account that are due, oldest due first, of these partitions."""
        ...

    async def claim_expired(
        self, worker_id: str, partitions: Collection[int], *, now: datetime, at_most: int
    ) -> Sequence[Work]:
        """As `claim`, those rows of every account, PENDING or to be cancelled, whose deadline has passed, due or not."""
        ...

    async def accounts_due(self, partitions: Collection[int], *, now: datetime) -> Sequence[str]:
        """The accounts that have rows due and not held, in these partitions."""
        ...

    async def pulses(self) -> Sequence[Pulse]:
        """Every lease holder."""
        ...

    async def take_over(self, stopped: Sequence[Pulse], *, now: datetime) -> int:
        """End the leases of those of `stopped` that have not renewed since, and give up, as doubtful and due at once, every row
        whose holder has no lease; how many they were. Rows that are being written at this moment are left for the next call."""
        ...

    async def release(self, worker_id: str, work_ids: Collection[int]) -> None:
        """Give up rows that were not pushed: due at once, by anyone. What was doubtful of them before stays so; of the others what
        is to be cancelled has its deadline brought forward."""
        ...

    async def mark_pushing(self, worker_id: str, work_ids: Collection[int]) -> Collection[int]:
        """Make durable, before the first byte, that these rows are about to be pushed: should their lease run out, they are
        doubtful. The ids of those still held by this worker. Only needed where a PMS offers neither key nor look-up."""
        ...

    async def record(
        self, worker_id: str, finals: Sequence[Final], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        """Record outcomes. Final ones drop the sealed card (IN_DOUBT ones keep it) and put their event in the outbox in the same
        transaction; the events, by work id. What this worker no longer holds is left as it is and is absent from the answer."""
        ...

    async def offer_again(self, *, before: datetime, now: datetime, at_most: int) -> Sequence[OutboxEvent]:
        """Events recorded, or last given out here, before `before` and not yet published, oldest first: those that a crash left
        behind, for the caller to publish. Of one submission never one before whose predecessor is published."""
        ...

    async def published(self, outbox_ids: Collection[int]) -> None:
        """Forget events that the log has acknowledged."""
        ...

    async def backlog(self, *, now: datetime) -> Backlog:
        """What is due and not held."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """One submission as a reader sees it. `record` is the record of section 2.5 as JSON text, ready to be sent. `revision` is that
    of its last event, 0 before the first."""

    id: int
    request_id: str
    status: Status
    accepted_at: str
    updated_at: str
    fingerprint: str
    record: str
    attempts: Sequence[Attempt]
    problem: Mapping[str, Any] | None
    property_id: str
    revision: int = 0
    cancellation: Cancellation | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page by keyset: `records` as JSON texts, ascending by id. `current` is the id from which it starts; `previous` and
    `next` are None where there is no such page."""

    records: Sequence[str]
    current: int
    previous: int | None
    next: int | None


class Reader(Protocol):
    """The reading side; sees one integration account at a time."""

    async def submission(self, account_id: str, request_id: str) -> Stored | None:
        """What was taken in under that request id."""
        ...

    async def reservation(self, account_id: str, reservation_id: int) -> Stored | None:
        """What was taken in with that id."""
        ...

    async def page(self, account_id: str, *, cursor: int, limit: int) -> Page:
        """The page of `limit` records that starts at id `cursor` (1 for the first page), whatever their status."""
        ...

    async def ready(self) -> bool:
        """True when a read would be expected to succeed now. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """One submission as an operator sees it in a list. Timestamps and dates are ISO 8601; `due_at` is None where nothing
    is left to do. `revision` is that of its last event, 0 before the first."""

    id: int
    request_id: str
    account_id: str
    status: Status
    property_id: str
    arrival: str
    departure: str
    attempts: int
    accepted_at: str
    due_at: str | None
    problem_code: str | None
    revision: int


class Repairs(Protocol):
    """What an operator does to a submission by hand. Each is fenced: it changes nothing where something else changed the row since
    it was read."""

    async def in_doubt(self, request_id: str) -> Work | None:
        """The submission, if it is IN_DOUBT. Nothing is leased: a worker may look for it at the same time."""
        ...

    async def settle(self, final: Final) -> bool:
        """Record how it ended, with its event, which the workers will publish. False where it was no longer in doubt."""
        ...

    async def reopen(self, work: Work, *, attempts: Sequence[Attempt], now: datetime, deadline_at: datetime) -> bool:
        """Make it PENDING again, due at once and not doubtful. False where it was no longer in doubt."""
        ...


class Overview(Protocol):
    """The operator's side: every workspace's submissions."""

    async def find(self, request_id: str) -> tuple[Summary, Stored] | None:
        """What was taken in under that request id, whosever it is."""
        ...

    async def latest(self, *, status: Status | None, account_id: str | None, limit: int) -> Sequence[Summary]:
        """The newest submissions, of one status or account where given."""
        ...

    async def standings(self, request_ids: Collection[str]) -> Mapping[str, tuple[Status, int]]:
        """The status, and the revision of the last event, of each of these that was taken in."""
        ...
