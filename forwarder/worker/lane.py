"""A lane: one integration account's way to its PMS. Its trouble stays its own.

Bounded concurrency, its account's gate (a circuit breaker, a rate budget, what the PMS asked for), and at most one push in flight
for each room, so that two callers never race for the same nights. Held rows wait here in the order of their coming; rows of a busy
room stand aside without holding up the others. Where the PMS takes several at once, what waits goes together, as one push.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from forwarder.runtime.clock import Clock
from forwarder.store.work import Work
from forwarder.tenancy.port import Account
from forwarder.worker.batch import Batches, room_of, take_together
from forwarder.worker.diagnosis import UNTOUCHED, Finding
from forwarder.worker.gate import Entered, Gate

FreeRoom = Callable[[Finding], None]
"""To be called once the PMS has answered and the room is free, with what was found of the PMS."""

Deliver = Callable[[Account, Work, FreeRoom], Awaitable[None]]
"""Pushes one row and records what it came to. One that ends without a call of its `FreeRoom` found the PMS untouched."""


class Lane:
    """Starts deliveries as the account and its gate allow. `left` is called after each with the lane, to keep count and to fetch
    more."""

    def __init__(
        self,
        account: Account,
        gate: Gate,
        clock: Clock,
        deliver: Deliver,
        left: Callable[["Lane", Work], None],
        batches: Batches | None = None,
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
        self._pause: asyncio.Task[None] | None = None
        self._stopped = False
        self.waiting = 0
        """Held rows whose push has not started."""
        self.more_in_store = False
        self.account = account
        gate.configure(account)

    @property
    def deliveries(self) -> set[asyncio.Task[None]]:
        """Those under way."""
        return self._tasks

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
            elif (delay := self._gate.delay()) == 0.0:
                self._start(take_together(self._waiting, self._busy_rooms, self._most_together()))
            else:
                self._resume_in(delay)
                return

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

    def _start(self, works: Sequence[Work]) -> None:
        rooms = [room_of(work) for work in works]
        self._busy_rooms.update(rooms)
        self._pushing += 1
        self.waiting -= len(works)
        task = asyncio.create_task(self._run(self._gate.enter(), works, rooms))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, entered: Entered, works: Sequence[Work], rooms: Sequence[str]) -> None:
        answered = False

        def free_rooms(finding: Finding) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._gate.leave(entered, finding)
                self._free(rooms)

        try:
            if len(works) == 1 or self._batches is None:
                await self._deliver(self.account, works[0], free_rooms)
            else:
                await self._batches.deliver(self.account, works, free_rooms)
        finally:
            free_rooms(UNTOUCHED)
            for work in works:
                self._left(self, work)

    def _free(self, rooms: Sequence[str]) -> None:
        self._pushing -= 1
        for room in reversed(rooms):
            self._busy_rooms.discard(room)
            aside = self._aside.get(room)
            if aside:
                # Next in turn: it has waited longer than anything behind it.
                self._waiting.appendleft(aside.popleft())
                if not aside:
                    del self._aside[room]
        self._go_on()
