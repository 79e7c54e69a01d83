"""The store's port for the worker and operators' repairs. The port for reading is `store.lists.port`.

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
    """The database rejects the values, and a retry would not help. No row was changed."""


class Recorder(Protocol):
    """The worker's side. Every method takes a batch and is one transaction.

    A worker is a lease holder, by `worker_id`: it holds rows for as long as it renews, and recording a row that it no longer holds
    changes nothing. Before its first `renew`, and after its lease was taken over, it gets no rows: submissions that it ingests
    wait. When `ingest` or `claim` raises, the worker holds none of those rows, even if the store committed.
    """

    async def renew(self, worker_id: str, *, seconds: float) -> bool:
        """Extends this worker's lease by `seconds`. False if it was taken over: the worker no longer holds any rows."""
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
        """Inserts each new submission as PENDING; returns those of them that are `held` as leased work. A submission that FAILED
        with the revision of `replay_of` becomes PENDING again, due at once. A submission whose cancellation came first is not
        leased. A submission whose request id is known with another fingerprint is not made: the row of the first notes when the
        last such one came (`conflicting_at`), and `on_conflict` is called with it.

        A repeat of an earlier submission (`Earlier.is_repeated_by`), of this batch or any before, gets no row: from then on its
        request id is an alias of the earlier one. `on_duplicate` is called with each after the commit. A submission with the stay
        and guest of others that may lead to reservations is marked as `similar_to` these. Replays are decided one after the other:
        if another submission replaces it (`Earlier.replaces`), earlier or later, it stays FAILED, and `on_duplicate` is called.

        Ids are assigned in the order in which they become visible: a reader that has seen an id has missed none below it.
        """
        ...

    async def request_cancellations(
        self, arrivals: Sequence[CancellationArrival], *, now: datetime
    ) -> Mapping[str, NotedOn]:
        """Notes the cancellation on each submission, or on its original if it is a duplicate; returns the existing rows by request
        id, of the submissions and of the duplicates. A worker that holds one finishes its push first.

        The deadline of a submission that was surely not sent becomes `now`; a CONFIRMED one becomes due at once, to be cancelled.
        If the submission is not known yet, the cancellation is noted when it is ingested, and it is not leased then. Changes
        nothing if a cancellation was noted before, unless that one failed with the revision that the request names.
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
        """Like `claim`, but for rows of any account, PENDING or to be cancelled, whose deadline has passed, due or not. The worker
        must not push them."""
        ...

    async def accounts_due(self, partitions: Collection[int], *, now: datetime) -> Sequence[str]:
        """The accounts that have rows in these partitions that are due and not leased."""
        ...

    async def heartbeats(self) -> Sequence[Heartbeat]:
        """The heartbeat of every lease holder."""
        ...

    async def take_over(self, stopped: Sequence[Heartbeat], *, now: datetime) -> int:
        """Ends the leases of the `stopped` workers that have not renewed since, and frees every row whose holder has no lease, due
        at once; returns how many rows. Each counts as possibly sent, unless its target was empty and it was not marked by
        `mark_pushing`. Rows that are being written at this moment are left for the next call."""
        ...

    async def leased_ids(self, worker_id: str) -> Collection[int]:
        """The ids of all rows that this worker holds."""
        ...

    async def abandon(self, worker_id: str, work_ids: Collection[int], *, now: datetime) -> int:
        """Frees rows of this worker whose state it does not know, as `take_over` would; returns how many."""
        ...

    async def release(self, worker_id: str, work_ids: Collection[int]) -> None:
        """Frees rows that were not pushed: any worker may claim them at once. Rows that were possibly sent before stay so; of the
        others, the cancelled ones have their deadline brought forward."""
        ...

    async def mark_pushing(self, worker_id: str, work_ids: Collection[int]) -> Collection[int]:
        """Makes durable, before the first byte, that these rows are about to be pushed: if the lease expires, they count as
        possibly sent. Returns the ids of those that this worker still holds. Only needed for rows with an empty target."""
        ...

    async def record(
        self, worker_id: str, ended: Sequence[Ended], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        """Records outcomes. For those that ended, drops the sealed card (except IN_DOUBT) and puts the event in the outbox, in the
        same transaction; returns the events by work id. Rows that this worker no longer holds are unchanged and absent from the
        result."""
        ...

    async def republish(self, *, before: datetime, now: datetime, limit: int) -> Sequence[OutboxEvent]:
        """Unpublished events that were recorded, or last returned here, before `before`, oldest first, for the caller to publish: a
        crash left them behind. An event is returned only once the earlier ones of its submission are published. One that cannot be
        read stays in the outbox, postponed as by `keep_event`."""
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
        """Clears the marks of rows whose pushes are over."""
        ...

    async def published(self, outbox_ids: Collection[int]) -> None:
        """Forget events that the log has acknowledged."""
        ...

    async def backlog(self, *, now: datetime) -> Backlog:
        """The due rows that are not leased."""
        ...

    @property
    def changes(self) -> int:
        """How often the database behind the connections turned out to be another one, or to have restarted. Cheap."""
        ...

    async def observe(self) -> None:
        """Checks which database responds now; `changes` counts it if it is another one."""
        ...

    async def lacking(self, held: Collection[int], *, now: datetime) -> Mapping[str, int]:
        """Counts what the database acknowledged to this recorder within the last hour and no longer has: `submissions`, `outcomes`
        (events and cancellations), postponed rows (`put_off`), and `claims` of the rows `held`; and unfinished `recoveries`. Empty
        if it has all: then nothing that this process relies on was lost."""
        ...

    def remember_lost(self, work_ids: Collection[int], now: datetime) -> None:
        """These rows were claimed by this worker, and the database has them as never claimed: `lacking` counts them until that is
        mended, since they may have been sent."""
        ...


class CardKeys(Protocol):
    """The keys of rows' cards. Every method is one transaction and raises `StoreUnavailable`. Destroyed keys cannot be
    recovered."""

    async def known(self, request_ids: Collection[str]) -> Collection[str]:
        """The submissions among these that were ingested, also as duplicates: their cards are not needed again."""
        ...

    async def take(self, request_ids: Collection[str]) -> Mapping[str, CardKey]:
        """The existing keys. Destroys the stored keys of security codes, so that only the caller has them."""
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
        """Replaces a row's card that is still sealed to a key of the topic by `card` and its own keys, None if it needs none. Does
        nothing if the row has its own keys already, or has ended."""
        ...

    async def sweep(self, *, now: datetime) -> int:
        """Destroy what has expired, or has no row under way; how many there were."""
        ...


class Repairs(Protocol):
    """An operator's manual changes to a submission. Each call is fenced: it changes nothing if the row was changed since it was
    read."""

    async def in_doubt(self, request_id: str) -> Work | None:
        """The submission, if it is IN_DOUBT. Nothing is leased: a worker may be looking it up at the same time."""
        ...

    async def settle(self, ended: Ended) -> bool:
        """Records the outcome and its event, which the workers will publish. False if it is no longer IN_DOUBT."""
        ...

    async def make_due(self, work_ids: Collection[int], *, now: datetime) -> int:
        """Make due at once those of these that wait for a later time and that no worker holds; how many there were."""
        ...

    async def reopen(self, work: Work, *, attempts: Sequence[Attempt], now: datetime, deadline_at: datetime) -> bool:
        """Makes it PENDING again, due at once, as never sent. False if it is no longer IN_DOUBT."""
        ...
