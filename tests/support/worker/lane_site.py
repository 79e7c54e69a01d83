"""Account queues on a clock that is moved by hand, and one account whose pushes are answered by hand."""

import itertools
from typing import Any

from forwarder.worker.dispatch.breaker import Tolerance
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.throttle import Throttle, Throttles
from tests.support.memory.clock import ManualClock, settle
from tests.support.worker.pushes import DOWN, Pushes
from tests.support.worker.works import account, work

TEN = Tolerance().failures
"""So many failures in a row open the breaker."""


class LaneSite:
    """`offer` counts its rows from 1. `settings` are the account's."""

    def __init__(self, *, held_at_most: int = 200, **settings: Any) -> None:
        self.clock = ManualClock()
        self.pushes = Pushes()
        self.account = account(**settings)
        self.gates = Throttles(self.clock)
        self.lanes = Dispatcher(self.clock, self.pushes.deliver, held_at_most=held_at_most, gates=self.gates)
        self._numbers = itertools.count(1)

    @property
    def gate(self) -> Throttle:
        """The account's."""
        return self.gates.of(self.account)

    async def offer(self, count: int) -> None:
        """So many more rows, each of a room of its own."""
        self.lanes.offer(self.account, [work(next(self._numbers)) for _ in range(count)])
        await settle()

    async def open_breaker(self) -> None:
        """Fail as often as it takes, and no more."""
        await self.offer(TEN)
        await self.pushes.answer(finding=DOWN)
        assert not self.pushes.under_way
