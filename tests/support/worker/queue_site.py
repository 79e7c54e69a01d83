"""Account queues on a clock that is moved by hand, and one account whose pushes are answered by hand."""

import itertools
from dataclasses import replace
from typing import Any, cast

from forwarder.process.clock import Clock
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.port import Directory
from forwarder.topics.port import Topics
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.throttle import MAX_FAILURES, Throttle, Throttles
from forwarder.worker.parts import WorkerParts, WorkerSettings
from tests.support.memory.clock import ManualClock, settle
from tests.support.worker.cards import card_parts
from tests.support.worker.pushes import DOWN, Pushes
from tests.support.worker.works import account, work

TEN = MAX_FAILURES
"""So many failures in a row open the breaker."""


class QueueSite:
    """`offer` counts its rows from 1. `settings` are the account's."""

    def __init__(self, *, max_held: int = 200, **settings: Any) -> None:
        self.clock = ManualClock()
        self.pushes = Pushes()
        self.account = account(**settings)
        self.throttles = Throttles(self.clock)
        self.dispatcher = Dispatcher(self.clock, self.pushes.run, max_held=max_held, throttles=self.throttles)
        self._numbers = itertools.count(1)

    @property
    def throttle(self) -> Throttle:
        """The account's."""
        return self.throttles.of(self.account)

    async def offer(self, count: int) -> None:
        """So many more rows, each of a room of its own."""
        self.dispatcher.offer(self.account, [work(next(self._numbers)) for _ in range(count)])
        await settle()

    async def open_breaker(self) -> None:
        """Fail as often as it takes, and no more."""
        await self.offer(TEN)
        await self.pushes.answer(signal=DOWN)
        assert not self.pushes.under_way


def parts_of(
    recorder: Recorder, directory: Directory, clock: Clock, settings: WorkerSettings, **others: Any
) -> WorkerParts:
    """Those of a worker that reads neither log nor PMS, and `others`."""
    absent = cast("Any", None)
    parts = WorkerParts(
        log=absent,
        topics=Topics(),
        publisher=absent,
        recorder=recorder,
        directory=directory,
        unsealer=absent,
        pms=absent,
        clock=clock,
        settings=settings,
        signer=absent,
        cards=card_parts(),
    )
    return replace(parts, **others)
