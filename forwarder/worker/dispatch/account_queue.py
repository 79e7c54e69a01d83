"""One integration account's queue to its PMS. Its trouble stays its own.

Bounded concurrency, its account's throttle (a circuit breaker, a rate budget, pauses that the PMS asked for), and at most one push
in flight for each room, so that two callers never race for the same nights. Held rows wait in order of arrival; rows of a busy
room step aside without blocking the others.

Reservations and cancellations share all of that but the breaker: while it blocks one of the two, the other continues.

If one request to the PMS can create several reservations, waiting rows are batched into one push: rows of different rooms that
were never sent. Rows in doubt and cancellations go alone. A batch never waits for more rows: it has those that wait when its turn
comes.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Where, contained
from forwarder.reservation.outcome import Status
from forwarder.store.submissions.port import Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.throttle import Admission, Throttle
from forwarder.worker.push_context import NOT_ATTEMPTED, HealthSignal, PushContext

_MAX_PASSED_OVER: Final = 100
"""How many rows to skip in search of one more for a batch; rows further behind wait for the next batch."""

Push = Callable[[Sequence[PushContext]], Awaitable[HealthSignal]]
"""Pushes these rows in one request. Returns the PMS's health signal once the PMS has responded and the rooms are free; the
results of the rows are recorded after that, and then each row is released. A push that raises releases no row, and attempted
nothing."""

MaxPerCreate = Callable[[Account], int]
"""How many reservations one request to the account's PMS can create."""


class AccountQueue:
    """Starts pushes as the account and its throttle allow. `on_released` is called with the queue and each row that is over, to
    keep count and to fetch more."""

    def __init__(
        self,
        account: Account,
        throttle: Throttle,
        clock: Clock,
        push: Push,
        max_per_create: MaxPerCreate,
        on_released: Callable[["AccountQueue", Work], None],
    ) -> None:
        self._throttle = throttle
        self._clock = clock
        self._push = push
        self._max_per_create = max_per_create
        self._on_released = on_released
        self._waiting: deque[Work] = deque()
        self._aside: dict[str, deque[Work]] = {}
        self._busy_rooms: set[str] = set()
        self._in_flight = 0
        self._begun: deque[tuple[Sequence[PushContext], Sequence[str], Admission]] = deque()
        self._makers = 0
        self._started = 0
        self._put_off: dict[bool, deque[Work]] = {True: deque(), False: deque()}  # by whether they cancel
        self._pauses: dict[bool | None, asyncio.Task[None]] = {}
        """Of the breakers, by whether they are for cancellations; None: of the rate budget, for which all wait."""
        self._cancelling = 0
        self._stopped = False
        self.waiting = 0
        """Held rows whose push has not started."""
        self.more_in_store = False
        self.tasks: set[asyncio.Task[None]] = set()
        """Those that make pushes now."""
        self.account = account
        throttle.configure(account)

    @property
    def idle(self) -> bool:
        """Whether it holds no row: none waits, is being pushed, or is being recorded."""
        return not self.waiting and not self._started

    @property
    def running_low(self) -> bool:
        """Whether it has room while the store has more. Rows that wait for the cancellations' breaker take no room from
        reservations."""
        return self.more_in_store and self.waiting - len(self._put_off[True]) < self.account.concurrency

    def configure(self, account: Account) -> None:
        """Applies the account's current settings."""
        if account != self.account:
            self.account = account
            self._throttle.configure(account)
        self.proceed()

    def offer(self, work: Work) -> None:
        """Push `work` when its turn comes."""
        self._waiting.append(work)
        self.waiting += 1
        self._start_what_may()

    def withdraw(self, unwanted: Callable[[Work], bool]) -> list[Work]:
        """Give back the rows that have not started and for which `unwanted` is true."""
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

    def stop(self) -> None:
        """Starts no more pushes. The caller withdraws the rows that have not started."""
        self._stopped = True

    def proceed(self) -> None:
        """Starts what has become possible, perhaps before its planned time."""
        if None in self._pauses and self._throttle.pace_delay() == 0.0:
            self._end_pauses()
        self._start_what_may()

    def _start_what_may(self) -> None:
        throttle = self._throttle
        for cancelling, put_off in self._put_off.items():
            if put_off and (delay := self._lane_delay(cancelling=cancelling)) > 0.0:
                self._pause_for(delay, lane=cancelling)
            elif put_off:
                self._waiting.extendleft(reversed(put_off))  # they have waited longer
                put_off.clear()
                if cancelling in self._pauses:
                    self._pauses.pop(cancelling).cancel()
        while self._waiting and self._in_flight < throttle.limit and not self._stopped and None not in self._pauses:
            room, cancelling = room_of(self._waiting[0]), self._waiting[0].cancellation is not None
            if room in self._busy_rooms:
                self._aside.setdefault(room, deque()).append(self._waiting.popleft())
            elif (delay := self._lane_delay(cancelling=cancelling)) > 0.0:
                self._put_off[cancelling].append(self._waiting.popleft())
                self._pause_for(delay, lane=cancelling)
            elif (delay := throttle.pace_delay()) > 0.0:
                self._pause_for(delay, lane=None)
                if delay == math.inf:  # the loan continues the queue
                    throttle.want(throttle.limit - self._in_flight, self.waiting)
                return
            else:
                # Probe an unhealthy PMS with a single row.
                max_together = 1 if throttle.blocked else self._max_per_create(self.account)
                if max_together == 1 or cancelling:
                    self._start([self._waiting.popleft()], [room])
                else:
                    works = take_together(self._waiting, self._busy_rooms, max_together)
                    self._start(works, [room_of(work) for work in works])

    def _lane_delay(self, *, cancelling: bool) -> float:
        """Seconds until one more reservation, or cancellation, may start, by its own breaker; infinity while cancellations use
        half of the limit."""
        if cancelling and self._cancelling >= max(self._throttle.limit // 2, 1):
            return math.inf  # slow cancellations leave half of what may be in flight to reservations
        return self._throttle.breaker_delay(cancelling=cancelling)

    def _pause_for(self, seconds: float, *, lane: bool | None) -> None:
        async def pause() -> None:
            await self._clock.sleep(seconds)
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
        self._started += len(works)
        self.waiting -= len(works)
        pushes = [PushContext(self.account, work, self._released) for work in works]
        self._begun.append((pushes, rooms, self._throttle.start(cancelling=cancelling)))
        if self._makers < self._in_flight:
            self._makers += 1
            task = asyncio.create_task(self._make_pushes())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _make_pushes(self) -> None:
        """One after the other while there are any: a task for each would cost as much as parsing the PMS's response."""
        try:
            while self._begun:
                await self._make(*self._begun.popleft())
                await asyncio.sleep(0)  # others may be ready
        finally:
            self._makers -= 1

    async def _make(self, pushes: Sequence[PushContext], rooms: Sequence[str], admission: Admission) -> None:
        signal, ended = NOT_ATTEMPTED, False
        try:
            signal = await self._push(pushes)
            ended = True
        except FAULTS as error:  # the queue continues; the rows are left to the lease
            contained(Where.ACCOUNT, error, account_id=self.account.id)
        finally:
            for push in () if ended else pushes:
                push.release()
            self._throttle.end(admission, signal)
            self._in_flight -= 1
            self._cancelling -= admission.cancelling
            for room in reversed(rooms):
                self._busy_rooms.discard(room)
                aside = self._aside.get(room)
                if aside:
                    # Next in turn: it has waited longer than anything behind it.
                    self._waiting.appendleft(aside.popleft())
                    if not aside:
                        del self._aside[room]
            self.proceed()

    def _released(self, work: Work) -> None:
        self._started -= 1
        self._on_released(self, work)


def room_of(work: Work) -> str:
    """The room, within its account: at most one push at a time is in flight for it."""
    submission = work.submission
    return f"{submission.property_id}\0{submission.room_id}"


def take_together(waiting: deque[Work], busy_rooms: Collection[str], max_together: int) -> list[Work]:
    """Takes the first of `waiting`, whose room is not busy, and those that can share its push, in order. Rows of one room keep
    their order."""
    first = waiting.popleft()
    taken = [first]
    if not _goes_with_others(first):
        return taken
    passed_over: list[Work] = []
    rooms = {room_of(first)}
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
