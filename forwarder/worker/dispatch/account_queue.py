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
from typing import Final, NamedTuple

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


class _Started(NamedTuple):
    """A push in progress: its admission by the throttle, its busy rooms, and its rows."""

    admission: Admission
    rooms: Sequence[str]
    pushes: Sequence[PushContext]


class AccountQueue:
    """Starts pushes as the account and its throttle allow. `on_released` is called with the queue and each row that is over, to
    keep count and to fetch more.

    A task makes pushes one after the other while there are any: a task for each would cost as much as parsing the PMS's response.
    """

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
        self._tasks: set[asyncio.Task[None]] = set()
        self._continuing = False
        self._next: _Started | None = None
        self._started = 0
        self._pause: asyncio.Task[None] | None = None
        self._put_off: dict[bool, deque[Work]] = {True: deque(), False: deque()}  # by whether they cancel
        self._breaker_pauses: dict[bool, asyncio.Task[None]] = {}
        self._cancelling = 0
        self._stopped = False
        self.waiting = 0
        """Held rows whose push has not started."""
        self.more_in_store = False
        self.account = account
        throttle.configure(account)

    @property
    def tasks(self) -> Collection[asyncio.Task[None]]:
        """Those that make pushes now."""
        return self._tasks

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
        aside = [*self._put_off.values(), *self._aside.values()]
        everything = [*self._waiting, *(work for works in aside for work in works)]
        withdrawn = [work for work in everything if unwanted(work)]
        if not withdrawn:
            return []
        self._waiting = deque(work for work in self._waiting if not unwanted(work))
        self._put_off = {lane: deque(w for w in works if not unwanted(w)) for lane, works in self._put_off.items()}
        remaining = {room: deque(w for w in works if not unwanted(w)) for room, works in self._aside.items()}
        self._aside = {room: works for room, works in remaining.items() if works}
        self.waiting -= len(withdrawn)
        if not self.waiting:
            self._end_pause()
        return withdrawn

    def stop(self) -> None:
        """Starts no more pushes. The caller withdraws the rows that have not started."""
        self._stopped = True

    def proceed(self) -> None:
        """Starts what has become possible, perhaps before its planned time."""
        if self._pause is not None and self._throttle.pace_delay() == 0.0:
            self._end_pause()
        self._start_what_may()

    def _start_what_may(self) -> None:
        throttle = self._throttle
        for cancelling, put_off in self._put_off.items():
            if put_off and (delay := self._lane_delay(cancelling=cancelling)) > 0.0:
                self._look_again_in(delay, cancelling=cancelling)
            elif put_off:
                self._waiting.extendleft(reversed(put_off))  # they have waited longer
                put_off.clear()
                if cancelling in self._breaker_pauses:
                    self._breaker_pauses.pop(cancelling).cancel()
        while self._waiting and self._in_flight < throttle.limit and not self._stopped and self._pause is None:
            room, cancelling = room_of(self._waiting[0]), self._waiting[0].cancellation is not None
            if room in self._busy_rooms:
                self._aside.setdefault(room, deque()).append(self._waiting.popleft())
            elif (delay := self._lane_delay(cancelling=cancelling)) > 0.0:
                self._put_off[cancelling].append(self._waiting.popleft())
                self._look_again_in(delay, cancelling=cancelling)
            elif (delay := throttle.pace_delay()) > 0.0:
                self._resume_in(delay)
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

    def _look_again_in(self, seconds: float, *, cancelling: bool) -> None:
        if seconds < math.inf and cancelling not in self._breaker_pauses:
            self._breaker_pauses[cancelling] = asyncio.create_task(
                self._look_again_after(seconds, cancelling=cancelling)
            )

    async def _look_again_after(self, seconds: float, *, cancelling: bool) -> None:
        await self._clock.sleep(seconds)
        del self._breaker_pauses[cancelling]
        self._start_what_may()

    def _resume_in(self, seconds: float) -> None:
        if seconds < math.inf:
            self._pause = asyncio.create_task(self._resume_after(seconds))
        else:  # the loan continues the queue
            self._throttle.want(self._throttle.limit - self._in_flight, self.waiting)

    def _end_pause(self) -> None:
        while self._breaker_pauses:
            self._breaker_pauses.popitem()[1].cancel()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    async def _resume_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._pause = None
        try:
            self._start_what_may()
        except Exception as error:  # noqa: BLE001 - the next sweep continues the queue
            contained(Where.ACCOUNT, error, account_id=self.account.id)

    def _start(self, works: Sequence[Work], rooms: Sequence[str]) -> None:
        self._busy_rooms.update(rooms)
        self._in_flight += 1
        self._started += len(works)
        self.waiting -= len(works)
        pushes = [PushContext(self.account, work, self._released) for work in works]
        cancelling = works[0].cancellation is not None
        self._cancelling += cancelling
        started = _Started(self._throttle.start(cancelling=cancelling), rooms, pushes)
        if not self._continuing:
            self._begin(started)
            return
        if self._next is not None:
            self._begin(self._next)  # and not the later one, which would overtake it
        self._next = started

    def _begin(self, started: _Started) -> None:
        task = asyncio.create_task(self._run(started))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, started: _Started) -> None:
        try:
            while True:
                try:
                    signal = await self._push(started.pushes)
                except FAULTS as error:  # the queue continues; the rows are left to the lease
                    contained(Where.ACCOUNT, error, account_id=self.account.id)
                    for push in started.pushes:
                        push.release()
                    signal = NOT_ATTEMPTED
                self._continuing = True
                self._free(started, signal)
                following, self._next = self._next, None
                self._continuing = False
                if following is None:
                    return
                started = following
                # Pushes that started earlier go first; and requests sent in one turn of the loop are answered together.
                await asyncio.sleep(0)
        except BaseException:
            self._free(started, NOT_ATTEMPTED)
            for push in started.pushes:
                push.release()
            raise

    def _released(self, work: Work) -> None:
        self._started -= 1
        self._on_released(self, work)

    def _free(self, started: _Started, signal: HealthSignal) -> None:
        self._throttle.end(started.admission, signal)
        self._in_flight -= 1
        self._cancelling -= started.admission.cancelling
        for room in reversed(started.rooms):
            self._busy_rooms.discard(room)
            aside = self._aside.get(room)
            if aside:
                # Next in turn: it has waited longer than anything behind it.
                self._waiting.appendleft(aside.popleft())
                if not aside:
                    del self._aside[room]
        self.proceed()


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
