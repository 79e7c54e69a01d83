"""How what is published gathers into whole batches for one aiokafka producer. Touches that producer alone.

A batch holds what goes to one partition at one time. What publishing costs, here and in the brokers, goes by the number of
requests, and of batches in them, far more than by the number of messages.
"""

import asyncio
import copy
from asyncio import Future
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from forwarder.topics.kafka.connection import look_at
from forwarder.topics.partitioning import partition_of
from forwarder.topics.port import Message
from forwarder.topics.time_limits import TimeLimits

_CROWD = 3  # messages in one departure; with fewer than that there is little to share
_FULL = 24  # so many make a request worth its price: nobody waits for more, least of all for those who wait for these


class _Batch:
    """What goes to one partition, until that is acknowledged. `builder` is aiokafka's."""

    def __init__(self, builder: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.builder = builder
        self._loop = loop
        self._waiters: list[Future[None]] = []

    def add(self, message: Message) -> bool:
        """Whether there was room for it. The first message always finds some."""
        headers = list(message.headers)
        return self.builder.append(timestamp=None, key=message.key, value=message.value, headers=headers) is not None

    def settled(self) -> Future[None]:
        """Done when all of it is acknowledged, or with the error that it failed with. The caller's own: may be cancelled."""
        waiter: Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def settle(self, error: BaseException | None) -> None:
        """Tell everybody who waits."""
        for waiter in self._waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(copy.copy(error))  # a traceback of its own for each who raises it


@dataclass(slots=True, eq=False)
class _PartitionQueue:
    """One partition: the batch that gathers, and the one before it, which is still on its way."""

    topic: str
    partition: int
    gathering: _Batch | None = None
    under_way: _Batch | None = None
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the batch that gathers leaves."""


class BatchAccumulator:
    """Sends the batches of one producer. Of each partition no more than one is on its way; what comes meanwhile gathers.

    All that has gathered leaves together, so that it shares requests, and at once; only after a crowd left, the next to
    leave wait until `pause_seconds` have gone by, or enough of them are there. So a few wait for nobody, and many share.
    """

    def __init__(self, producer: AIOKafkaProducer, *, pause_seconds: float, limit_seconds: float) -> None:
        self.producer = producer
        self._pause_seconds = pause_seconds
        self._limits = TimeLimits(limit_seconds)
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[str, int], _PartitionQueue] = {}
        self._partitions: dict[str, int] = {}  # looked up anew after each departure
        self._gathered = 0
        self._not_before = 0.0
        self._departure: asyncio.Handle | None = None
        self._departing: set[asyncio.Task[None]] = set()

    def add(self, topic: str, message: Message) -> Future[None] | None:
        """Done when `message` is acknowledged; it fails with what that failed with, and after `limit_seconds` with `TimeoutError`.

        None where that takes waiting before: nothing was added then, and `deliver` is for it.
        """
        partitions = self._partitions.get(topic) or self._look_up(topic)
        if not partitions:
            return None
        batch = self._join(self._lane(topic, partition_of(message.key, partitions)), message)
        if batch is None:
            return None
        settled = batch.settled()
        self._limits.begin(settled)
        return settled

    async def deliver(self, topic: str, messages: Sequence[Message]) -> None:
        """Return once all of `messages` are acknowledged, those of one key in their order.

        Broken off, it may leave some of them to be published all the same. Raises `KafkaError`.
        """
        joined: dict[_Batch, Future[None]] = {}
        try:
            partitions = len(await self.producer.partitions_for(topic))
            for message in messages:
                lane = self._lane(topic, partition_of(message.key, partitions))
                while (batch := self._join(lane, message)) is None:
                    await lane.room.wait()
                if batch not in joined:
                    joined[batch] = batch.settled()
            for settled in joined.values():
                await settled
        except BaseException:
            for settled in joined.values():
                if not settled.cancel():
                    look_at(settled)
            raise

    async def drain(self) -> None:
        """Return once all that was added is acknowledged or has failed. Nothing pauses any more."""
        self._pause_seconds = self._not_before = 0.0
        while held := [batch for lane in self._lanes.values() for batch in (lane.gathering, lane.under_way) if batch]:
            self._schedule()
            await asyncio.gather(*(batch.settled() for batch in held), return_exceptions=True)

    def _look_up(self, topic: str) -> int:
        """How many partitions `topic` has, as far as is known; else 0."""
        self._partitions[topic] = count = len(self.producer.client.cluster.partitions_for_topic(topic) or ())
        return count

    def _lane(self, topic: str, partition: int) -> _PartitionQueue:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _PartitionQueue(topic, partition)
        return lane

    def _join(self, lane: _PartitionQueue, message: Message) -> _Batch | None:
        """The lane's batch, with `message` in it now; none while it is full and cannot leave."""
        batch = lane.gathering
        if batch is None:
            batch = lane.gathering = _Batch(self.producer.create_batch(), self._loop)
            batch.add(message)
            if lane.under_way is None:
                self._schedule()
        elif not batch.add(message):
            lane.room.clear()
            return None
        self._gathered += 1
        if self._gathered == _FULL:
            self._hasten()
        return batch

    def _hasten(self) -> None:
        self._not_before = 0.0
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None
            self._schedule()

    def _schedule(self) -> None:
        if self._departure is None:
            pause = self._not_before - self._loop.time()
            self._departure = self._loop.call_later(max(pause, 0.0), self._depart)

    def _depart(self) -> None:
        self._departure = None
        self._partitions.clear()
        task = self._loop.create_task(self._hand_over())
        self._departing.add(task)
        task.add_done_callback(self._departing.discard)

    async def _hand_over(self) -> None:
        """Give aiokafka all batches that are ready: its next requests carry them."""
        count = 0
        for lane in tuple(self._lanes.values()):
            batch = lane.gathering
            if batch is not None and lane.under_way is None:
                # Nothing may join from here on: aiokafka numbers a batch a while before it writes it out.
                count += batch.builder.record_count()
                lane.gathering, lane.under_way = None, batch
                lane.room.set()
                await self._send(lane, batch)
        self._gathered -= count
        if count >= _CROWD and self._gathered < _FULL:
            self._not_before = self._loop.time() + self._pause_seconds

    async def _send(self, lane: _PartitionQueue, batch: _Batch) -> None:
        try:
            future = await self.producer.send_batch(batch.builder, lane.topic, partition=lane.partition)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait raise it
            self._landed(lane, batch, error)
        else:
            future.add_done_callback(partial(self._acknowledged, lane, batch))

    def _acknowledged(self, lane: _PartitionQueue, batch: _Batch, future: Future[Any]) -> None:
        # A cancelled one has no exception to ask for: whether it was stored is not known, as after any failure.
        self._landed(lane, batch, KafkaError("broken off") if future.cancelled() else future.exception())

    def _landed(self, lane: _PartitionQueue, batch: _Batch, error: BaseException | None) -> None:
        lane.under_way = None
        batch.settle(error)
        if lane.gathering is not None:
            self._schedule()
