"""All account queues of one worker, and their memory budget. Rows that do not fit stay in the store, due."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from forwarder.observability import metrics
from forwarder.process.clock import Clock
from forwarder.process.loops import cancel_all
from forwarder.store.submissions.port import UNKNOWN, Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.account_queue import AccountQueue, MaxPerCreate, Push
from forwarder.worker.dispatch.throttle import Throttles

MAX_HELD_BYTES: Final = 48 * 1024 * 1024
"""The size of requests and sealed cards as text. They take about twice that in memory; a worker then stays below 300 MB."""

_MIN_SIZE: Final = 1024
"""The minimum size to count for a row, which has more than its request."""


class Dispatcher:
    """Keeps a queue for each account that has work. `refill_wanted` is set when one runs low while the store has more for it."""

    def __init__(
        self,
        clock: Clock,
        push: Push,
        *,
        max_held: int,
        throttles: Throttles | None = None,
        max_per_create: MaxPerCreate = lambda _: 1,
        target: Callable[[Account], str | None] = lambda _: UNKNOWN,
    ) -> None:
        self.target = target
        """The current target of pushes to an account's PMS, which leased rows record."""
        self._throttles = throttles or Throttles(clock)
        self._clock = clock
        self._push = push
        self._max_per_create = max_per_create
        self._queues: dict[str, AccountQueue] = {}
        self._budget = MemoryBudget(rows=max_held)
        self._reserved = 0
        self._stopped = False
        self._emptied: asyncio.Future[None] | None = None
        self.refill_wanted = asyncio.Event()
        self.partitions: frozenset[int] | None = None
        """Those whose rows may be held here: rows of one room are always with one worker. None while nothing was assigned yet."""
        self.being_cancelled: Collection[str] = ()
        """Request ids whose cancellations are being noted in the store right now: a row read from there may not show it yet."""

        self._cancelled: set[str] = set()

    @property
    def held(self) -> int:
        """Rows that this worker holds: waiting, being pushed, or being recorded."""
        return len(self._budget)

    def room_for(self, account: Account) -> int:
        """How many more rows of the account may be held: an even share, so that no account crowds out another. While its
        throttle blocks it, at most its concurrency: the rest waits in the store."""
        if account.paused or self._stopped:
            return 0
        queue = self._queues.get(account.id)
        others = len(self._queues) - (queue is not None)
        share = max(self._budget.max_rows // (others + 1), 1)
        if self._throttles.of(account).blocked:
            share = min(share, account.concurrency)
        waiting = 0 if queue is None else queue.waiting
        return max(min(share - waiting, self._budget.max_rows - self.held - self._reserved), 0)

    @contextmanager
    def reserving(self) -> Iterator[Callable[[Account, int], int]]:
        """Yields a function that gives an account room for up to so many rows, and returns for how many. Until the block ends they
        count as held: intake, sweep and refill wait for the store at the same time, and none may fill another's room."""
        reserved = 0

        def reserve(account: Account, wanted: int) -> int:
            nonlocal reserved
            room = min(self.room_for(account), wanted)
            reserved += room
            self._reserved += room
            return room

        try:
            yield reserve
        finally:
            self._reserved -= reserved

    def offer(self, account: Account, works: Sequence[Work]) -> Sequence[int]:
        """Holds these rows and pushes each in its turn. Returns the ids of refused rows: their partition was lost or their
        cancellation arrived meanwhile, or a push of theirs under a lost lease is still running."""
        queue = self._queue(account)
        refused = []
        for work in works:
            ours = self.partitions is None or work.partition in self.partitions
            cancelled = work.cancellation is None and work.submission.request_id in self.being_cancelled
            if ours and not cancelled and self._budget.add(work):
                queue.offer(work)
            else:
                refused.append(work.id)
                self._cancelled.discard(work.submission.request_id)
        metrics.HELD.set(self.held)
        return refused

    def note_more(self, account: Account, *, more: bool = True) -> None:
        """Remember whether the account has due rows in the store beyond those that are held."""
        self._queue(account).more_in_store = more

    def configure(self, account: Account) -> list[int]:
        """Apply the account's current settings. Returns the ids of rows given up because it was paused."""
        queue = self._queues.get(account.id)
        if queue is None:
            return []
        queue.configure(account)
        return self._withdraw_from(queue, lambda _: True) if account.paused else []

    def proceed(self, account_id: str) -> None:
        """Starts what the account's throttle permits now."""
        if account_id in self._queues:
            self._queues[account_id].proceed()

    def holds(self) -> Mapping[int, Work]:
        """The rows that are held, by id, each as it was claimed."""
        return dict(self._budget.works)

    def accounts(self) -> Sequence[str]:
        """The accounts that have a queue now."""
        return list(self._queues)

    def running_low(self) -> Sequence[str]:
        """The accounts whose queues have room while the store has more for them."""
        return [queue.account.id for queue in self._queues.values() if queue.running_low]

    def withdraw(self, unwanted: Callable[[Work], bool]) -> list[int]:
        """Give up the rows that have not started and for which `unwanted` is true. Returns their ids."""
        return [work_id for queue in self._queues.values() for work_id in self._withdraw_from(queue, unwanted)]

    def note_cancelled(self, request_ids: Collection[str]) -> None:
        """Records cancellations of rows in progress here: those not sent yet will not be sent."""
        self._cancelled.update(request_ids)

    def is_cancelled(self, work: Work) -> bool:
        """Whether a cancellation of `work`, not shown by it, was ingested since it was leased; or would be by another worker, which
        has its partition now."""
        elsewhere = self.partitions is not None and work.partition not in self.partitions
        return elsewhere or (work.cancellation is None and work.submission.request_id in self._cancelled)

    async def stop(self, grace_seconds: float) -> tuple[Collection[int], int]:
        """Starts no more pushes, and waits up to `grace_seconds` for running ones. Returns the ids of rows that never started,
        and the number of rows whose push was interrupted; those are left to the lease, in doubt."""
        self._stopped = True
        for queue in self._queues.values():
            queue.stop()
        unstarted = self.withdraw(lambda _: True)
        try:
            async with asyncio.timeout(grace_seconds):
                if self.held:
                    self._emptied = asyncio.get_running_loop().create_future()
                    await self._emptied
        except TimeoutError:
            late = self.held
            await cancel_all([task for queue in self._queues.values() for task in queue.tasks])
            return unstarted, late
        return unstarted, 0

    def close_if_idle(self, account_id: str) -> None:
        """The store has nothing due for the account: its queue closes, unless it still holds rows. Not as soon as it is idle: until
        the next sweep it keeps its share of the memory."""
        queue = self._queues.get(account_id)
        if queue is not None:
            queue.more_in_store = False
            if queue.idle:
                del self._queues[account_id]

    def _queue(self, account: Account) -> AccountQueue:
        queue = self._queues.get(account.id)
        if queue is None:
            throttle = self._throttles.of(account)
            queue = self._queues[account.id] = AccountQueue(
                account, throttle, self._clock, self._push, self._max_per_create, self._released
            )
            if self._stopped:
                queue.stop()
        return queue

    def _withdraw_from(self, queue: AccountQueue, unwanted: Callable[[Work], bool]) -> list[int]:
        withdrawn = queue.withdraw(unwanted)
        for work in withdrawn:
            self._budget.remove(work.id)
            self._cancelled.discard(work.submission.request_id)
        if withdrawn:
            queue.more_in_store = True
        return [work.id for work in withdrawn]

    def _released(self, queue: AccountQueue, work: Work) -> None:
        self._budget.remove(work.id)
        self._cancelled.discard(work.submission.request_id)
        metrics.HELD.set(self.held)
        if queue.running_low:
            self.refill_wanted.set()
        if self._emptied is not None and not self.held and not self._emptied.done():
            self._emptied.set_result(None)


class MemoryBudget:
    """The held rows, and how many may be held: by number, and by their average size."""

    def __init__(self, *, rows: int, size: int = MAX_HELD_BYTES) -> None:
        self._rows = rows
        self._bytes = size
        self.works: dict[int, Work] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self.works)

    @property
    def max_rows(self) -> int:
        """How many rows of the present average size may be held."""
        return min(self._rows, self._bytes * len(self.works) // self._total) if self._total else self._rows

    def add(self, work: Work) -> bool:
        """Holds a row; False if it is held already."""
        if work.id in self.works:
            return False
        self.works[work.id] = work
        self._total += max(work.size, _MIN_SIZE)
        return True

    def remove(self, work_id: int) -> None:
        """Hold a row no longer; nothing where it was not held."""
        work = self.works.pop(work_id, None)
        if work is not None:
            self._total -= max(work.size, _MIN_SIZE)
