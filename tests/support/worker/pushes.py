"""Stands for the push pipeline behind an account queue: each push waits until the test lets it go."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from forwarder.worker.push.run import HealthSignal, PmsHealth, PushContext
from tests.support.memory.clock import settle

WELL = HealthSignal(PmsHealth.WELL)
DOWN = HealthSignal(PmsHealth.FAILING, "pms_unavailable")


class Pushes:
    """`run` is what a dispatcher is given. `started` are the ids of the rows in the order in which their pushes started; `together`
    those of each push of several. Until `record` is called, nothing is recorded where `recording` is False."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.together: list[list[int]] = []
        self.under_way: dict[int, asyncio.Future[HealthSignal]] = {}
        self.recording = True
        self.unrecorded: list[PushContext] = []
        self.rooms: Counter[tuple[str, str, str]] = Counter()
        self.most_in_one_room = 0

    async def run(self, pushes: Sequence[PushContext]) -> HealthSignal:
        ids = [push.work.id for push in pushes]
        if len(ids) > 1:
            self.together.append(ids)
        else:
            self.started += ids
        rooms = [(push.account.id, push.work.submission.property_id, push.work.submission.room_id) for push in pushes]
        self.rooms.update(rooms)
        self.most_in_one_room = max(self.most_in_one_room, *(self.rooms[room] for room in rooms))
        self.under_way[ids[0]] = asyncio.get_running_loop().create_future()
        signal = await self.under_way[ids[0]]
        self.rooms.subtract(rooms)
        del self.under_way[ids[0]]
        self.unrecorded += pushes
        if self.recording:
            self.record()
        return signal

    def record(self) -> None:
        """What the PMS has answered is recorded."""
        while self.unrecorded:
            self.unrecorded.pop(0).release()

    async def answer(self, *work_ids: int, signal: HealthSignal = WELL) -> None:
        """The PMS answers these, or all that are under way."""
        for work_id in work_ids or tuple(self.under_way):
            self.under_way[work_id].set_result(signal)
        await settle()
