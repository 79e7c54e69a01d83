"""What the worker and the operators' repairs ask of the store, and nothing of how it is kept. What readers ask is in `reading`.

Exception
├── StoreUnavailable     whatever raised it was either done whole or not at all
└── ValueError
    └── Unstorable       only whoever takes in what others wrote has to expect it

The SQL store translates its drivers' errors into these in one place.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from forwarder.store.submissions.work import (
    UNKNOWN_SAFEGUARDS,
    Arrival,
    Attempt,
    Backlog,
    CancellationArrival,
    Final,
    OutboxEvent,
    Postponed,
    Pulse,
    Work,
)


class StoreUnavailable(Exception):
    """The store could not be reached or did not answer in time."""


class Unstorable(ValueError):
    """The database takes none of what it was given, for what is in it: to try again changes nothing. Not one row was changed."""


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
        self,
        worker_id: str,
        account_id: str,
        partitions: Collection[int],
        *,
        now: datetime,
        at_most: int,
        safeguards: str | None = UNKNOWN_SAFEGUARDS,
    ) -> Sequence[Work]:
        """Lease up to `at_most` rows of the account that are due, oldest due first, of these partitions. `safeguards`: what pushes
        of them carry, as in `Work`."""
        ...

    async def claim_expired(
        self, worker_id: str, partitions: Collection[int], *, now: datetime, at_most: int
    ) -> Sequence[Work]:
        """As `claim`, those rows of every account, PENDING or to be cancelled, whose deadline has passed, due or not. None of them
        is to be pushed."""
        ...

    async def accounts_due(self, partitions: Collection[int], *, now: datetime) -> Sequence[str]:
        """The accounts that have rows due and not held, in these partitions."""
        ...

    async def pulses(self) -> Sequence[Pulse]:
        """Every lease holder."""
        ...

    async def take_over(self, stopped: Sequence[Pulse], *, now: datetime) -> int:
        """End the leases of those of `stopped` that have not renewed since, and give up, due at once, every row whose holder has no
        lease; how many they were. Each is doubtful unless it was surely not pushed: its pushes carried nothing, and it was not
        marked. Rows that are being written at this moment are left for the next call."""
        ...

    async def held_by(self, worker_id: str) -> Collection[int]:
        """The ids of all rows that this worker holds."""
        ...

    async def give_up(self, worker_id: str, work_ids: Collection[int], *, now: datetime) -> int:
        """Give up rows of this worker's of which it does not know what became of them, as `take_over` would; how many they were."""
        ...

    async def release(self, worker_id: str, work_ids: Collection[int]) -> None:
        """Give up rows that were not pushed: due at once, by anyone. What was doubtful of them before stays so; of the others what
        is to be cancelled has its deadline brought forward."""
        ...

    async def mark_pushing(self, worker_id: str, work_ids: Collection[int]) -> Collection[int]:
        """Make durable, before the first byte, that these rows are about to be pushed: should their lease run out, they are
        doubtful. The ids of those still held by this worker. Only needed of rows that were leased without safeguards."""
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
