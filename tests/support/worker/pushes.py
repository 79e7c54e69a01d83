"""Stands for push and record behind a lane: each delivery waits until the test lets it go."""

import asyncio
from collections import Counter

from forwarder.store.submissions.work import Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.account_queue import Release
from forwarder.worker.dispatch.breaker import Health
from forwarder.worker.push.health_signal import HealthSignal
from tests.support.memory.clock import settle

WELL = HealthSignal(Health.WELL)
DOWN = HealthSignal(Health.FAILING, "pms_unavailable")


class Pushes:
    """`deliver` is what lanes are given. `started` are the ids of the rows in the order in which their pushes started. Until
    `record` is called, nothing is recorded where `recording` is False."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.under_way: dict[int, asyncio.Future[HealthSignal]] = {}
        self.recording = True
        self.unrecorded: list[tuple[Work, Release]] = []
        self.rooms: Counter[tuple[str, str, str]] = Counter()
        self.most_in_one_room = 0

    async def deliver(self, account: Account, work: Work, left: Release) -> HealthSignal:
        room = (account.id, work.submission.property_id, work.submission.room_id)
        self.started.append(work.id)
        self.rooms[room] += 1
        self.most_in_one_room = max(self.most_in_one_room, self.rooms[room])
        self.under_way[work.id] = asyncio.get_running_loop().create_future()
        finding = await self.under_way[work.id]
        self.rooms[room] -= 1
        del self.under_way[work.id]
        self.unrecorded.append((work, left))
        if self.recording:
            self.record()
        return finding

    def record(self) -> None:
        """What the PMS has answered is recorded."""
        while self.unrecorded:
            work, left = self.unrecorded.pop()
            left(work)

    async def answer(self, *work_ids: int, finding: HealthSignal = WELL) -> None:
        """The PMS answers these, or all that are under way."""
        for work_id in work_ids or tuple(self.under_way):
            self.under_way[work_id].set_result(finding)
        await settle()
