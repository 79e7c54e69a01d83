"""The account queues of one worker, and their memory budget. Rows that do not fit stay in the store, due.

A queue allows one push in flight for each room, so that two callers never race for the same nights. Held rows wait in order of
arrival; rows of a busy room step aside without blocking the others. Reservations and cancellations share all of that but the
breaker: while it blocks one of the two, the other continues.

If one request to the PMS can create several reservations, waiting rows of different rooms that were never sent are pushed
together; those in doubt and cancellations go alone. A batch never waits for more rows.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from forwarder.observability import metrics
from forwarder.process.clock import Clock
from forwarder.process.loops import FAULTS, Where, cancel_all, contained
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import UNKNOWN, Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.throttle import PushStart, Throttle, Throttles
from forwarder.worker.push.run import NOT_ATTEMPTED, HealthSignal, PushContext

MAX_HELD_BYTES: Final = 48 * 1024 * 1024
"""The size of requests and sealed cards as text. They take about twice that in memory; a worker then stays below 300 MB."""
_MIN_SIZE: Final = 1024  # the minimum size to count for a row, which has more than its request
_MAX_PASSED_OVER: Final = 100  # rows to skip in search of one more for a batch; the next batch looks further

Push = Callable[[Sequence[PushContext]], Awaitable[HealthSignal]]
"""Pushes these rows in one request. Returns the PMS's health signal once the PMS has responded and the rooms are free; the results
are recorded after that, and then each row is released. A push that raises releases no row, and attempted nothing."""

MaxPerCreate = Callable[[Account], int]  # how many reservations one request to the account's PMS can create


@dataclass(eq=False, repr=False)
class AccountQueue:
    """Starts pushes as the account and its throttle allow. `on_released` is called with the queue and each row that is over, to
    keep count and to fetch more. `waiting`, `started`: how many of its rows no push has begun, or one has. `tasks` push now."""

    account: Account
    throttle: Throttle
    clock: Clock
    push: Push
    max_per_create: MaxPerCreate
    on_released: Callable[["AccountQueue", Work], None]

    def __post_init__(self) -> None:
        self._waiting: deque[Work] = deque()
        self._aside: dict[str, deque[Work]] = {}
        self._busy_rooms: set[str] = set()
        self._in_flight = self._makers = self._cancelling = 0
        self._begun: deque[tuple[Sequence[PushContext], Sequence[str], PushStart]] = deque()
        self._put_off: dict[bool, deque[Work]] = {True: deque(), False: deque()}  # by whether they cancel
        # Of the breakers, by whether they are for cancellations; None: of the rate budget, for which all wait.
        self._pauses: dict[bool | None, asyncio.Task[None]] = {}
        self.waiting = self.started = 0
        self.more_in_store = self.stopped = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.throttle.configure(self.account)

    @property
    def running_low(self) -> bool:
        """Whether it has room while the store has more. Rows that wait for the cancellations' breaker take no room."""
        return self.more_in_store and self.waiting - len(self._put_off[True]) < self.account.concurrency

    def configure(self, account: Account) -> None:
        if account != self.account:
            self.account = account
            self.throttle.configure(account)
        self.proceed()

    def offer(self, work: Work) -> None:
        self._waiting.append(work)
        self.waiting += 1
        self._start_what_may()

    def withdraw(self, unwanted: Callable[[Work], bool]) -> list[Work]:
        """Gives up the rows that have not started and for which `unwanted` is true."""
        withdrawn: list[Work] = []

        def wanted(works: deque[Work]) -> deque[Work]:
            kept: deque[Work] = deque()
            for work in works:
                (withdrawn if unwanted(work) else kept).append(work)
            return kept

        self._waiting = wanted(self._waiting)
        self._put_off = {lane: wanted(works) for lane, works in self._put_off.items()}
        self._aside = {room: kept for room, works in self._aside.items() if (kept := wanted(works))}
        self.waiting -= len(withdrawn)
        if not self.waiting:
            self._end_pauses()
        return withdrawn

    def proceed(self) -> None:
        if None in self._pauses and self.throttle.pace_delay() == 0.0:
            self._end_pauses()
        self._start_what_may()

    def _start_what_may(self) -> None:
        throttle = self.throttle
        for cancelling, put_off in self._put_off.items():
            if put_off and (delay := self._lane_delay(cancelling=cancelling)) > 0.0:
                self._pause_for(delay, lane=cancelling)
            elif put_off:
                self._waiting.extendleft(reversed(put_off))  # they have waited longer
                put_off.clear()
                if cancelling in self._pauses:
                    self._pauses.pop(cancelling).cancel()
        while self._waiting and self._in_flight < throttle.limit and not self.stopped and None not in self._pauses:
            room, cancelling = room_of(self._waiting[0]), self._waiting[0].cancellation is not None
            if room in self._busy_rooms:
                self._aside.setdefault(room, deque()).append(self._waiting.popleft())
            elif (delay := self._lane_delay(cancelling=cancelling)) > 0.0:
                self._put_off[cancelling].append(self._waiting.popleft())
                self._pause_for(delay, lane=cancelling)
            elif (delay := throttle.pace_delay()) > 0.0:
                self._pause_for(delay, lane=None)
                if delay == math.inf:  # the loan continues the queue
                    throttle.budget.want(throttle.limit - self._in_flight, self.waiting)
                return
            else:
                # Probe an unhealthy PMS with a single row.
                max_together = 1 if throttle.failing is not None or cancelling else self.max_per_create(self.account)
                works = take_together(self._waiting, self._busy_rooms, max_together)
                self._start(works, [room_of(work) for work in works])

    def _lane_delay(self, *, cancelling: bool) -> float:
        """Seconds until one more of its kind may start, by its breaker; infinity while cancellations use half of the limit."""
        if cancelling and self._cancelling >= max(self.throttle.limit // 2, 1):
            return math.inf  # slow cancellations leave half of what may be in flight to reservations
        return self.throttle.breaker_delay(cancelling=cancelling)

    def _pause_for(self, seconds: float, *, lane: bool | None) -> None:
        async def pause() -> None:
            await self.clock.sleep(seconds)
            del self._pauses[lane]
            try:
                self._start_what_may()
            except Exception as error:  # noqa: BLE001 - the next sweep continues the queue
                contained(Where.ACCOUNT, error, account_id=self.account.id)

        if seconds < math.inf and lane not in self._pauses:
            self._pauses[lane] = asyncio.create_task(pause())

    def _end_pauses(self) -> None:
        while self._pauses:
            self._pauses.popitem()[1].cancel()

    def _start(self, works: Sequence[Work], rooms: Sequence[str]) -> None:
        cancelling = works[0].cancellation is not None
        self._busy_rooms.update(rooms)
        self._in_flight += 1
        self._cancelling += cancelling
        self.started += len(works)
        self.waiting -= len(works)
        pushes = [PushContext(self.account, work, self._released) for work in works]
        self._begun.append((pushes, rooms, self.throttle.start(cancelling=cancelling)))
        if self._makers < self._in_flight:
            self._makers += 1
            task = asyncio.create_task(self._make_pushes())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _make_pushes(self) -> None:
        """One after the other while there are any: a task for each would cost as much as parsing the PMS's response."""
        try:
            while self._begun:
                pushes, rooms, start = self._begun.popleft()
                signal, unended = NOT_ATTEMPTED, pushes
                try:
                    signal, unended = await self.push(pushes), ()
                except FAULTS as error:  # the queue continues; the rows are left to the lease
                    contained(Where.ACCOUNT, error, account_id=self.account.id)
                finally:
                    for push in unended:
                        push.release()
                    self.throttle.end(start, signal)
                    self._in_flight -= 1
                    self._cancelling -= start.cancelling
                    for room in reversed(rooms):
                        self._busy_rooms.discard(room)
                        if aside := self._aside.get(room):
                            # Next in turn: it has waited longer than anything behind it.
                            self._waiting.appendleft(aside.popleft())
                            if not aside:
                                del self._aside[room]
                    self.proceed()
                await asyncio.sleep(0)  # others may be ready
        finally:
            self._makers -= 1

    def _released(self, work: Work) -> None:
        self.started -= 1
        self.on_released(self, work)


def room_of(work: Work) -> str:
    """The room, within its account: at most one push at a time is in flight for it."""
    submission = work.submission
    return f"{submission.property_id}\0{submission.room_id}"


def take_together(waiting: deque[Work], busy_rooms: Collection[str], max_together: int) -> list[Work]:
    """Takes the first of `waiting`, whose room is not busy, and those that can share its push. Rows of a room keep their order."""
    first = waiting.popleft()
    taken, passed_over, rooms = [first], list[Work](), {room_of(first)}
    if not _goes_with_others(first):
        return taken
    while waiting and len(taken) < max_together and len(passed_over) < _MAX_PASSED_OVER:
        work = waiting.popleft()
        room = room_of(work)
        fits = room not in rooms and room not in busy_rooms and _goes_with_others(work)
        (taken if fits else passed_over).append(work)
        rooms.add(room)
    waiting.extendleft(reversed(passed_over))
    return taken


def _goes_with_others(work: Work) -> bool:
    return work.status is Status.PENDING and not work.possibly_sent and work.cancellation is None


class Dispatcher:
    """Keeps a queue for each account that has work. `refill_wanted` is set when one runs low while the store has more for it.

    `target`: the current target of pushes to an account's PMS, which leased rows record. `partitions`: those whose rows may be held
    here, because rows of one room are always with one worker; None while nothing was assigned yet. `being_cancelled`: request ids
    whose cancellations are being noted in the store right now: a row read from there may not show it yet. `cancelled`: of rows
    in progress here; what was not sent yet will not be. `budget`: has the held rows, each as it was claimed."""

    def __init__(
        self,
        clock: Clock,
        push: Push,
        max_held: int,
        throttles: Throttles | None = None,
        max_per_create: MaxPerCreate = lambda _: 1,
        target: Callable[[Account], str | None] = lambda _: UNKNOWN,
    ) -> None:
        self.target = target
        self._throttles = throttles or Throttles(clock)
        self._ports = clock, push, max_per_create
        self.queues: dict[str, AccountQueue] = {}
        self.budget = MemoryBudget(rows=max_held)
        self._reserved = 0
        self._stopped = False
        self._emptied: asyncio.Future[None] | None = None
        self.refill_wanted = asyncio.Event()
        self.partitions: frozenset[int] | None = None
        self.being_cancelled: Collection[str] = ()
        self.cancelled: set[str] = set()

    @property
    def held(self) -> int:
        """Rows that wait, are being pushed, or are being recorded."""
        return len(self.budget.works)

    def room_for(self, account: Account) -> int:
        """How many more rows of the account may be held: an even share, so that no account crowds out another. While its
        throttle blocks it, at most its concurrency: the rest waits in the store."""
        if account.paused or self._stopped:
            return 0
        queue = self.queues.get(account.id)
        others = len(self.queues) - (queue is not None)
        share = max(self.budget.max_rows // (others + 1), 1)
        if self._throttles.of(account).failing is not None:
            share = min(share, account.concurrency)
        waiting = 0 if queue is None else queue.waiting
        return max(min(share - waiting, self.budget.max_rows - self.held - self._reserved), 0)

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
            if ours and not cancelled and self.budget.add(work):
                queue.offer(work)
            else:
                refused.append(work.id)
                self.cancelled.discard(work.submission.request_id)
        metrics.HELD.set(self.held)
        return refused

    def note_more(self, account: Account, *, more: bool = True) -> None:
        """Remembers whether the account has due rows in the store beyond those that are held."""
        self._queue(account).more_in_store = more

    def configure(self, account: Account) -> list[int]:
        """Applies the account's current settings. Returns the ids of rows given up because it was paused."""
        queue = self.queues.get(account.id)
        if queue is None:
            return []
        queue.configure(account)
        return self._withdraw_from(queue, lambda _: True) if account.paused else []

    def proceed(self, account_id: str) -> None:
        if account_id in self.queues:
            self.queues[account_id].proceed()

    def running_low(self) -> Sequence[str]:
        return [queue.account.id for queue in self.queues.values() if queue.running_low]

    def withdraw(self, unwanted: Callable[[Work], bool]) -> list[int]:
        """As `AccountQueue.withdraw`, of all queues; returns the ids."""
        return [work_id for queue in self.queues.values() for work_id in self._withdraw_from(queue, unwanted)]

    def is_cancelled(self, work: Work) -> bool:
        """Whether a cancellation of `work`, not shown by it, was ingested since its lease; or would be by another worker by now."""
        elsewhere = self.partitions is not None and work.partition not in self.partitions
        return elsewhere or (work.cancellation is None and work.submission.request_id in self.cancelled)

    async def stop(self, grace_seconds: float) -> tuple[Collection[int], int]:
        """Starts no more pushes, and waits up to `grace_seconds` for running ones. Returns the ids of rows that never started,
        and the number of rows whose push was interrupted; those are left to the lease, in doubt."""
        self._stopped = True
        for queue in self.queues.values():
            queue.stopped = True
        unstarted = self.withdraw(lambda _: True)
        if self.held:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._emptied], timeout=grace_seconds)
        if late := self.held:
            await cancel_all([task for queue in self.queues.values() for task in queue.tasks])
        return unstarted, late

    def close_if_idle(self, account_id: str) -> None:
        """The store has nothing due for the account: an idle queue closes. It kept its share until this sweep."""
        if (queue := self.queues.get(account_id)) is not None:
            queue.more_in_store = False
            if not queue.waiting and not queue.started:
                del self.queues[account_id]

    def _queue(self, account: Account) -> AccountQueue:
        queue = self.queues.get(account.id)
        if queue is None:
            throttle = self._throttles.of(account)
            queue = self.queues[account.id] = AccountQueue(account, throttle, *self._ports, self._released)
            queue.stopped = self._stopped
        return queue

    def _withdraw_from(self, queue: AccountQueue, unwanted: Callable[[Work], bool]) -> list[int]:
        withdrawn = queue.withdraw(unwanted)
        for work in withdrawn:
            self._forget(work)
        queue.more_in_store = queue.more_in_store or bool(withdrawn)
        return [work.id for work in withdrawn]

    def _forget(self, work: Work) -> None:
        self.budget.remove(work.id)
        self.cancelled.discard(work.submission.request_id)

    def _released(self, queue: AccountQueue, work: Work) -> None:
        self._forget(work)
        metrics.HELD.set(self.held)
        if queue.running_low:
            self.refill_wanted.set()
        if self._emptied is not None and not self.held and not self._emptied.done():
            self._emptied.set_result(None)


class MemoryBudget:
    """The held rows, and how many may be held (`max_rows`): by number, and by their present average size."""

    def __init__(self, *, rows: int, size: int = MAX_HELD_BYTES) -> None:
        self._rows, self._bytes, self._total = rows, size, 0
        self.works: dict[int, Work] = {}

    @property
    def max_rows(self) -> int:
        return min(self._rows, self._bytes * len(self.works) // self._total) if self._total else self._rows

    def add(self, work: Work) -> bool:
        """False if the row is held already."""
        if work.id in self.works:
            return False
        self.works[work.id] = work
        self._total += max(work.size, _MIN_SIZE)
        return True

    def remove(self, work_id: int) -> None:
        work = self.works.pop(work_id, None)
        if work is not None:
            self._total -= max(work.size, _MIN_SIZE)
