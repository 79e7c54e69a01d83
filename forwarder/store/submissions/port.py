"""What the worker and the operators' repairs need of the store, independent of how it is kept. Reading is in `store.lists.port`.

Exception
├── StoreUnavailable     the call was carried out completely or not at all
└── ValueError
    └── Unstorable       expected only where foreign content is ingested

The SQL store translates its drivers' errors into these in one place.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from forwarder.reservation.request import SealedCard
from forwarder.store.submissions.work import (
    UNKNOWN,
    Arrival,
    Attempt,
    Backlog,
    CancellationArrival,
    CardKey,
    ConflictingBody,
    Duplicate,
    Ended,
    Heartbeat,
    KeptCard,
    NotedOn,
    OutboxEvent,
    Postponed,
    Work,
    nobody_told,
)


class StoreUnavailable(Exception):
    """The store could not be reached or did not answer in time."""


class Unstorable(ValueError):
    """The database rejects the values it was given: trying again changes nothing. No row was changed."""


class Recorder(Protocol):
    """The worker's side. Every method takes a batch and is one transaction.

    A worker is a lease holder, by `worker_id`: it holds rows for as long as it renews, and what it records of a row that it no
    longer holds changes nothing. Before its first `renew`, and after its lease was taken over, it is given no rows: what it
    ingests waits. When `ingest` or `claim` raises, the worker holds none of those rows, whatever the store may have done.
    """

    async def renew(self, worker_id: str, *, seconds: float) -> bool:
        """Extend this worker's lease by `seconds`. False when it was taken over: the worker holds nothing any more."""
        ...

    async def end_lease(self, worker_id: str) -> None:
        """End this worker's lease: the next `take_over`, by any worker, frees what it still holds."""
        ...

    async def ingest(
        self,
        worker_id: str,
        arrivals: Sequence[Arrival],
        *,
        now: datetime,
        on_duplicate: Callable[[Duplicate], None] = nobody_told,
        on_conflict: Callable[[ConflictingBody], None] = nobody_told,
    ) -> Sequence[Work]:
        """Insert as PENDING each submission that is not known yet; those of them that are `held` are returned as leased work. One
        that FAILED with the revision of `replay_of` becomes PENDING again, due at once. One whose cancellation came first is not
        leased. One whose request id is known with another fingerprint is not made: the row of the first says when the last such
        came (`conflicting_at`), and `on_conflict` is called with it.

        One that is an earlier one sent again (`Earlier.is_repeated_by`), of this batch or of any before, gets no row: from then on
        its request id is another name of that one, whatever becomes of it. `on_duplicate` is called with each once that is
        committed. One with the stay and the guest of others that may stand is marked as `similar_to` these. Replays are decided one
        after the other: one in whose place another stands by then (`Earlier.replaces`), sent before it or since, stays FAILED, and
        `on_duplicate` is told.

        Ids are assigned in the order in which they become visible: a reader that has seen an id has missed none below it.
        """
        ...

    async def request_cancellations(
        self, arrivals: Sequence[CancellationArrival], *, now: datetime
    ) -> Mapping[str, NotedOn]:
        """Note on each submission, or on the one that it is a duplicate of, that it is to be cancelled; by the request ids of
        those, and of the duplicates, the rows that are there. Whoever holds one finishes what is under way.

        What was surely not sent has its deadline brought forward to `now`; what is CONFIRMED is due at once, to be cancelled. What
        is not known yet is noted when it is ingested, and then is not leased. Changes nothing where a cancellation was noted
        before, unless that one failed with the revision that the request names.
        """
        ...

    async def claim(
        self,
        worker_id: str,
        account_id: str,
        partitions: Collection[int],
        *,
        now: datetime,
        limit: int,
        target: str | None = UNKNOWN,
    ) -> Sequence[Work]:
        """Lease up to `limit` due rows of the account in these partitions, oldest due first. `target`: as in `Work`. A row that
        cannot be read is not leased: it rests for a while, with the fault among its attempts."""
        ...

    async def claim_expired(
        self, worker_id: str, partitions: Collection[int], *, now: datetime, limit: int
    ) -> Sequence[Work]:
        """Like `claim`, but rows of any account, PENDING or to be cancelled, whose deadline has passed, due or not. None of them
        is to be pushed."""
        ...

    async def accounts_due(self, partitions: Collection[int], *, now: datetime) -> Sequence[str]:
        """The accounts that have rows in these partitions that are due and not leased."""
        ...

    async def heartbeats(self) -> Sequence[Heartbeat]:
        """The heartbeat of every lease holder."""
        ...

    async def take_over(self, stopped: Sequence[Heartbeat], *, now: datetime) -> int:
        """End the leases of those of `stopped` that have not renewed since, and free, due at once, every row whose holder has no
        lease; how many rows. Each counts as possibly sent, unless its pushes carried nothing and it was not marked. Rows
        that are being written at this moment are left for the next call."""
        ...

    async def leased_ids(self, worker_id: str) -> Collection[int]:
        """The ids of all rows that this worker holds."""
        ...

    async def abandon(self, worker_id: str, work_ids: Collection[int], *, now: datetime) -> int:
        """Free rows of this worker whose fate it does not know, as `take_over` would; how many there were."""
        ...

    async def release(self, worker_id: str, work_ids: Collection[int]) -> None:
        """Free rows that were not pushed: anyone may claim them at once. What was possibly sent before stays so; of the rest,
        what is to be cancelled has its deadline brought forward."""
        ...

    async def mark_pushing(self, worker_id: str, work_ids: Collection[int]) -> Collection[int]:
        """Make durable, before the first byte, that these rows are about to be pushed: should the lease run out, they count as
        possibly sent. The ids of those that this worker still holds. Only needed for rows whose pushes carry nothing."""
        ...

    async def record(
        self, worker_id: str, ended: Sequence[Ended], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        """Record outcomes. Those that ended drop the sealed card (IN_DOUBT ones keep it) and put their event in the outbox in the
        same transaction; the events, by work id. Rows that this worker no longer holds are left alone and absent from the
        result."""
        ...

    async def republish(self, *, before: datetime, now: datetime, limit: int) -> Sequence[OutboxEvent]:
        """Events recorded, or last returned here, before `before` and not published yet, oldest first, for the caller to publish:
        those that a crash left behind. Of one submission, an event is returned only once the earlier ones are published. One that
        cannot be read stays where it is, and rests as by `keep_event`."""
        ...

    async def keep_event(self, outbox_id: int, *, until: datetime, error_id: str) -> None:
        """Note that an event could not be published, and return it no more before `until`."""
        ...

    async def kept_events(self) -> int:
        """How many events could not be published and are still in the outbox."""
        ...

    async def suspect(self, worker_id: str, work_id: int) -> int:
        """Make durable, before it is handled, that this worker pushes a row that was taken over again and again. How many workers
        have ended, or lost their lease, over it before."""
        ...

    async def clear_suspects(self, work_ids: Collection[int]) -> None:
        """It is known what became of these pushes."""
        ...

    async def published(self, outbox_ids: Collection[int]) -> None:
        """Forget events that the log has acknowledged."""
        ...

    async def backlog(self, *, now: datetime) -> Backlog:
        """What is due and not leased."""
        ...

    @property
    def changes(self) -> int:
        """How often the database behind the connections turned out to be another one, or to have restarted. Cheap."""
        ...

    async def observe(self) -> None:
        """Look which database answers now; `changes` counts it if it is another one."""
        ...

    async def lacking(self, held: Collection[int], *, now: datetime) -> Mapping[str, int]:
        """What the database does not have of what it acknowledged to this recorder within the last hour: how many `submissions`,
        `outcomes` (events and cancellations), rows that were `put_off`, and `claims` of the rows `held`; and `recoveries` that were
        begun and not finished. Empty where it has all: then nothing that this process relies on was lost."""
        ...

    def remember_lost(self, work_ids: Collection[int], now: datetime) -> None:
        """These rows were claimed by this worker, and the database has them as never claimed: `lacking` counts them until that is
        mended, since they may have been sent."""
        ...


class CardKeys(Protocol):
    """The keys of rows' cards. Every method is one transaction and raises `StoreUnavailable`. What is destroyed stays so."""

    async def known(self, request_ids: Collection[str]) -> Collection[str]:
        """Those of these submissions that were ingested, under whichever name: their cards are not needed again."""
        ...

    async def take(self, request_ids: Collection[str]) -> Mapping[str, CardKey]:
        """The keys, as far as there are any. Those of security codes are destroyed by it: whoever has taken one alone has it."""
        ...

    async def put_back(self, key: CardKey) -> None:
        """The security code's, which surely was not used, if the rest is still there."""
        ...

    async def destroy(self, request_ids: Collection[str]) -> None: ...

    async def sealing_keys(self) -> Collection[str]:
        """The ids of the topic's keys that cards of rows are still sealed to."""
        ...

    async def sealed_to(self, sealing_key: str, *, limit: int) -> Sequence[KeptCard]:
        """Cards that are still sealed to this one of the topic's keys."""
        ...

    async def kept(self, request_id: str) -> KeptCard | None:
        """A row's card as it is now; None where its keys were destroyed."""
        ...

    async def reseal(self, request_id: str, card: SealedCard, key: CardKey | None) -> None:
        """Let a row whose card is still sealed to a key of the topic have this one instead, with keys of its own, None where it
        needs none. Nothing happens where it has such already, or has ended."""
        ...

    async def sweep(self, *, now: datetime) -> int:
        """Destroy what has expired, or has no row under way; how many there were."""
        ...


class Repairs(Protocol):
    """What an operator does to a submission by hand. Each call is fenced: it changes nothing where the row was changed since it
    was read."""

    async def in_doubt(self, request_id: str) -> Work | None:
        """The submission, if it is IN_DOUBT. Nothing is leased: a worker may be looking it up at the same time."""
        ...

    async def settle(self, ended: Ended) -> bool:
        """Record how it ended, with its event, which the workers will publish. False where it is not IN_DOUBT any more."""
        ...

    async def make_due(self, work_ids: Collection[int], *, now: datetime) -> int:
        """Make due at once those of these that wait for a later time and that no worker holds; how many there were."""
        ...

    async def reopen(self, work: Work, *, attempts: Sequence[Attempt], now: datetime, deadline_at: datetime) -> bool:
        """Make it PENDING again, due at once, as never sent. False where it is not IN_DOUBT any more."""
        ...
