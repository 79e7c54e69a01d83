"""A lane: one integration account's way to its PMS. Its trouble stays its own.

Bounded concurrency, its account's gate (a circuit breaker, a rate budget, what the PMS asked for), and at most one push in flight
for each room, so that two callers never race for the same nights. Held rows wait here in the order of their coming; rows of a busy
room stand aside without holding up the others. Where the PMS takes several at once, what waits goes together, as one push.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from forwarder.process.clock import Clock
from forwarder.store.submissions.work import Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.batching import CreateBatching, room_of, take_together
from forwarder.worker.dispatch.throttle import Admission, Throttle
from forwarder.worker.push.health_signal import NOT_ATTEMPTED, HealthSignal

Release = Callable[[Work], None]
"""To be called with a row, once, when it is no longer held: what became of it is recorded, or is not this worker's to record."""

Deliver = Callable[[Account, Work, Release], Awaitable[HealthSignal]]
"""Pushes one row. Returns once the PMS has answered and the room is free, with what was found of the PMS; what the push came to is
recorded from then on, and waits for nobody. One that raises leaves its row, and found the PMS untouched."""


class _Started(NamedTuple):
    """A push under way: when it started, as the gate counts, its rows, and their rooms."""

    entered: Admission
    works: Sequence[Work]
    rooms: Sequence[str]


class AccountQueue:
    """Starts deliveries as the account and its gate allow. `left` is called with the lane and each row that is over, to keep count
    and to fetch more.

    A task makes one push after the other for as long as there is one to make: to make a task for each would cost as much as to
    read what the PMS answers.
    """

    def __init__(
        self,
        account: Account,
        gate: Throttle,
        clock: Clock,
        deliver: Deliver,
        left: Callable[["AccountQueue", Work], None],
        batches: CreateBatching | None = None,
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._deliver = deliver
        self._left = left
        self._batches = batches
        self._waiting: deque[Work] = deque()
        self._aside: dict[str, deque[Work]] = {}
        self._busy_rooms: set[str] = set()
        self._pushing = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._going_on = False
        self._next: _Started | None = None
        self._started = 0
        self._pause: asyncio.Task[None] | None = None
        self._stopped = False
        self.waiting = 0
        """Held rows whose push has not started."""
        self.more_in_store = False
        self.account = account
        gate.configure(account)

    @property
    def tasks(self) -> Collection[asyncio.Task[None]]:
        """Those that make pushes now."""
        return self._tasks

    @property
    def idle(self) -> bool:
        """Whether it holds no row: none waits, is being pushed, or is being recorded."""
        return not self.waiting and not self._started

    def configure(self, account: Account) -> None:
        """Go on under the account's settings of now."""
        if account != self.account:
            self.account = account
            self._gate.configure(account)
        self._go_on()

    def offer(self, work: Work) -> None:
        """Deliver `work` when its turn comes."""
        self._waiting.append(work)
        self.waiting += 1
        self._start_what_may()

    def withdraw(self, unwanted: Callable[[Work], bool]) -> list[Work]:
        """Give back the rows that have not started and that `unwanted` tells."""
        everything = [*self._waiting, *(work for works in self._aside.values() for work in works)]
        taken = [work for work in everything if unwanted(work)]
        if not taken:
            return []
        self._waiting = deque(work for work in self._waiting if not unwanted(work))
        remaining = {room: deque(w for w in works if not unwanted(w)) for room, works in self._aside.items()}
        self._aside = {room: works for room, works in remaining.items() if works}
        self.waiting -= len(taken)
        if not self.waiting:
            self._end_pause()
        return taken

    def stop(self) -> None:
        """Start nothing more. What has not started is to be withdrawn."""
        self._stopped = True

    def _go_on(self) -> None:
        """What is waited for may have come about before its time."""
        if self._pause is not None and self._gate.delay() == 0.0:
            self._end_pause()
        self._start_what_may()

    def _start_what_may(self) -> None:
        while self._waiting and self._pushing < self._gate.width and not self._stopped and self._pause is None:
            room = room_of(self._waiting[0])
            if room in self._busy_rooms:
                self._aside.setdefault(room, deque()).append(self._waiting.popleft())
            elif (delay := self._gate.delay()) > 0.0:
                self._resume_in(delay)
                return
            elif (most := self._most_together()) == 1:
                self._start([self._waiting.popleft()], [room])
            else:
                works = take_together(self._waiting, self._busy_rooms, most)
                self._start(works, [room_of(work) for work in works])

    def _most_together(self) -> int:
        # Whether a PMS is well again is found out with one.
        return 1 if self._batches is None or self._gate.shut else self._batches.most(self.account)

    def _resume_in(self, seconds: float) -> None:
        if seconds < math.inf:  # else the push whose end is waited for goes on with the lane
            self._pause = asyncio.create_task(self._resume_after(seconds))

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    async def _resume_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._pause = None
        self._start_what_may()

    def _start(self, works: Sequence[Work], rooms: Sequence[str]) -> None:
        self._busy_rooms.update(rooms)
        self._pushing += 1
        self._started += len(works)
        self.waiting -= len(works)
        started = _Started(self._gate.enter(), works, rooms)
        if not self._going_on:
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
                finding = await self._push(started.works)
                following = self._go_on_after(started, finding)
                if following is None:
                    return
                started = following
                # Its turn comes after what has started before it; and what is sent in one turn of the loop is answered together.
                await asyncio.sleep(0)
        except BaseException:
            self._free(started, NOT_ATTEMPTED)
            for work in started.works:
                self._leave(work)
            raise

    def _push(self, works: Sequence[Work]) -> Awaitable[HealthSignal]:
        if len(works) == 1 or self._batches is None:
            return self._deliver(self.account, works[0], self._leave)
        return self._batches.deliver(self.account, works, self._leave)

    def _go_on_after(self, started: _Started, finding: HealthSignal) -> _Started | None:
        """That push is over. The next, if there is one for its task to make."""
        self._going_on = True
        self._free(started, finding)
        following, self._next = self._next, None
        self._going_on = False
        return following

    def _leave(self, work: Work) -> None:
        self._started -= 1
        self._left(self, work)

    def _free(self, started: _Started, finding: HealthSignal) -> None:
        self._gate.leave(started.entered, finding)
        self._pushing -= 1
        for room in reversed(started.rooms):
            self._busy_rooms.discard(room)
            aside = self._aside.get(room)
            if aside:
                # Next in turn: it has waited longer than anything behind it.
                self._waiting.appendleft(aside.popleft())
                if not aside:
                    del self._aside[room]
        self._go_on()
