"""Gathers messages into record batches for one aiokafka producer.

A batch goes to one partition. The cost of publishing, here and in the brokers, depends on the number of requests, and of batches in
them, far more than on the number of messages.
"""

import asyncio
import copy
from asyncio import Future
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from forwarder.process.loops import detached
from forwarder.topics.kafka.internals import metadata_task, retrieve_exception, take_back_numbers
from forwarder.topics.port import Message
from forwarder.topics.publishing import partition_of

_BURST = 3  # messages sent together; with fewer there is little to share
_ENOUGH = 40  # messages that make a request worth its cost: waiting for more would only delay these


_TooLarge = (MessageSizeTooLargeError, RecordListTooLargeError)
"""Brokers refuse a batch that is larger than the topic or its segments allow, as a whole."""


class _Batch:
    """Messages for one partition, until they are acknowledged. `builder` is aiokafka's."""

    def __init__(self, builder: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.builder = builder
        self.messages: list[Message] = []
        self.refused: set[int] = set()
        """The messages that are too large for the topic, by `id`."""
        self._loop = loop
        self._waiters: list[Future[None]] = []

    def add(self, message: Message) -> bool:
        """Adds `message` if there is room, as always for the first one; False otherwise."""
        headers = list(message.headers)
        if self.builder.append(timestamp=None, key=message.key, value=message.value, headers=headers) is None:
            return False
        self.messages.append(message)
        return True

    def acknowledged(self) -> Future[None]:
        """Done when the whole batch, except `refused` messages, is acknowledged; or failed with its error. The caller may
        cancel this future."""
        waiter: Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def complete(self, error: BaseException | None) -> None:
        """Resolve every waiter's future."""
        for waiter in self._waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(copy.copy(error))  # each waiter raises its own copy, with a traceback of its own


@dataclass(slots=True, eq=False)
class _PartitionQueue:
    """The batch of one partition that is being filled, and the one before it that is in flight."""

    topic: str
    partition: int
    filling: _Batch | None = None
    in_flight: _Batch | None = None
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the batch that was being filled is sent."""


class BatchAccumulator:
    """Sends the batches of one producer. Each partition has at most one in flight; messages that come meanwhile fill the next.

    Ready messages are sent together and at once, so that they share requests. Only after a burst does the next send wait, until
    `pause_seconds` have passed or enough messages are queued. So single messages never wait, and bursts share requests.
    """

    def __init__(self, producer: AIOKafkaProducer, *, pause_seconds: float, limit_seconds: float) -> None:
        self.producer = producer
        self._metadata_task = metadata_task(producer.client)
        self._pause_seconds = pause_seconds
        self._timeouts = Timeouts(limit_seconds)
        self._loop = asyncio.get_running_loop()
        self._queues: dict[tuple[str, int], _PartitionQueue] = {}
        self._partitions: dict[str, int] = {}  # looked up again after each send
        self._waiting_messages = 0
        self._not_before = 0.0
        self._next_send: asyncio.Handle | None = None
        self._sends: set[asyncio.Task[None]] = set()

    @property
    def usable(self) -> bool:
        """False once the producer has lost its metadata task: it would never learn of a new leader."""
        return not self._metadata_task.done()

    def enqueue(self, topic: str, message: Message) -> tuple[_Batch, Future[None]] | None:
        """The batch that `message` joins, and a future that is done when the message is acknowledged, or among the batch's
        `refused`; it fails with the error of its batch, or with `TimeoutError` after `limit_seconds`.

        None if enqueueing would have to wait: then nothing was enqueued, and the caller must use `publish`.
        """
        partitions = self.partitions(topic)
        if not partitions:
            return None
        batch = self._add(self._queue(topic, partition_of(message.key, partitions, message.partition)), message)
        if batch is None:
            return None
        acknowledged = batch.acknowledged()
        self._timeouts.start(acknowledged)
        return batch, acknowledged

    async def publish(self, topic: str, messages: Sequence[Message]) -> Collection[int]:
        """Returns once all of `messages` are acknowledged or refused for their size: the ids of the refused ones. Messages of
        one key are stored in order.

        After a cancellation some of them may still be published. Raises `KafkaError`.
        """
        joined: dict[_Batch, Future[None]] = {}
        try:
            partitions = len(await self.producer.partitions_for(topic))
            for message in messages:
                queue = self._queue(topic, partition_of(message.key, partitions, message.partition))
                while (batch := self._add(queue, message)) is None:
                    await queue.room.wait()
                if batch not in joined:
                    joined[batch] = batch.acknowledged()
            for acknowledged in joined.values():
                await acknowledged
            return {each for batch in joined for each in batch.refused}
        except BaseException:
            for acknowledged in joined.values():
                if not acknowledged.cancel():
                    retrieve_exception(acknowledged)
            raise

    async def drain(self) -> None:
        """Returns once every enqueued message is acknowledged or has failed. Disables the pauses."""
        self._pause_seconds = self._not_before = 0.0
        while held := [batch for queue in self._queues.values() for batch in (queue.filling, queue.in_flight) if batch]:
            self._schedule_send()
            await asyncio.gather(*(batch.acknowledged() for batch in held), return_exceptions=True)

    def partitions(self, topic: str) -> int:
        """The number of partitions of `topic` known to the client; 0 if unknown."""
        return self._partitions.get(topic) or self._look_up(topic)

    def _look_up(self, topic: str) -> int:
        """Asks the client for the number of partitions of `topic`; 0 if unknown."""
        self._partitions[topic] = count = len(self.producer.client.cluster.partitions_for_topic(topic) or ())
        return count

    def _queue(self, topic: str, partition: int) -> _PartitionQueue:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = _PartitionQueue(topic, partition)
        return queue

    def _add(self, queue: _PartitionQueue, message: Message) -> _Batch | None:
        """The queue's batch, which now has `message`; None while that batch is full and cannot be sent yet."""
        batch = queue.filling
        if batch is None:
            batch = queue.filling = _Batch(self.producer.create_batch(), self._loop)
            batch.add(message)
            if queue.in_flight is None:
                self._schedule_send()
        elif not batch.add(message):
            queue.room.clear()
            return None
        self._waiting_messages += 1
        if self._waiting_messages == _ENOUGH:
            self._end_pause()
        return batch

    def _end_pause(self) -> None:
        self._not_before = 0.0
        if self._next_send is not None:
            self._next_send.cancel()
            self._next_send = None
            self._schedule_send()

    def _schedule_send(self) -> None:
        if self._next_send is None:
            pause = self._not_before - self._loop.time()
            self._next_send = self._loop.call_later(max(pause, 0.0), self._start_send)

    def _start_send(self) -> None:
        self._next_send = None
        self._partitions.clear()
        task = detached(self._send_ready())
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def _send_ready(self) -> None:
        """Hand aiokafka all batches that are ready: its next requests carry them."""
        count = 0
        for queue in tuple(self._queues.values()):
            batch = queue.filling
            if batch is not None and queue.in_flight is None:
                # No message may be added from here on: aiokafka numbers a batch before it writes it out.
                count += batch.builder.record_count()
                queue.filling, queue.in_flight = None, batch
                queue.room.set()
                await self._send(queue, batch)
        self._waiting_messages -= count
        if count >= _BURST and self._waiting_messages < _ENOUGH:
            self._not_before = self._loop.time() + self._pause_seconds

    async def _send(self, queue: _PartitionQueue, batch: _Batch) -> None:
        try:
            future = await self.producer.send_batch(batch.builder, queue.topic, partition=queue.partition)
        except Exception as error:  # noqa: BLE001 - any error is raised by the waiters
            self._complete(queue, batch, error)
        else:
            future.add_done_callback(partial(self._on_response, queue, batch))

    def _on_response(self, queue: _PartitionQueue, batch: _Batch, future: Future[Any]) -> None:
        error = _error_of(future)
        if isinstance(error, _TooLarge):
            task = detached(self._send_in_pieces(queue, batch))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)
        else:
            self._complete(queue, batch, error)

    async def _send_in_pieces(self, queue: _PartitionQueue, whole: _Batch) -> None:
        """Sends `whole`, which was refused for its size, in halves, down to single refused messages. It stays the batch in flight
        meanwhile, which keeps the order."""
        take_back_numbers(self.producer, queue.topic, queue.partition, len(whole.messages))
        pieces, error = deque([whole.messages]), None
        try:
            while pieces:
                messages = pieces.popleft()
                if messages is not whole.messages and await self._are_stored(queue, messages):
                    continue
                if len(messages) == 1:
                    whole.refused.add(id(messages[0]))
                    continue
                middle = len(messages) // 2
                pieces.extendleft((messages[middle:], messages[:middle]))
        except Exception as failure:  # noqa: BLE001 - as in `_send`
            error = failure
        self._complete(queue, whole, error)

    async def _are_stored(self, queue: _PartitionQueue, messages: Sequence[Message]) -> bool:
        """Whether the brokers accepted these as one batch; False if that is still too large."""
        batch = _Batch(self.producer.create_batch(), self._loop)
        for message in messages:
            batch.add(message)
        future = await self.producer.send_batch(batch.builder, queue.topic, partition=queue.partition)
        await asyncio.wait([future])
        error = _error_of(future)
        if isinstance(error, _TooLarge):
            take_back_numbers(self.producer, queue.topic, queue.partition, len(messages))
            return False
        if error is not None:
            raise error
        return True

    def _complete(self, queue: _PartitionQueue, batch: _Batch, error: BaseException | None) -> None:
        queue.in_flight = None
        batch.complete(error)
        if queue.filling is not None:
            self._schedule_send()


def _error_of(future: Future[Any]) -> BaseException | None:
    """The future's error. A cancelled future counts as a failure: its batch may or may not be stored."""
    return KafkaError("cancelled") if future.cancelled() else future.exception()


class Timeouts:
    """One time limit for many futures, with a single timer: each fails `seconds` after `start` unless it is done before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._started: deque[tuple[float, Future[None]]] = (
            deque()
        )  # in order of their deadlines: the limit is the same for all
        self._timer: asyncio.TimerHandle | None = None

    def start(self, future: Future[None]) -> None:
        """Fail `future` with `TimeoutError` unless it is done in time."""
        self._drop_done()
        self._started.append((self._loop.time() + self._seconds, future))
        if self._timer is None:
            self._timer = self._loop.call_at(self._started[0][0], self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._drop_done()
        while self._started and self._started[0][0] <= now:
            self._started.popleft()[1].set_exception(TimeoutError())
            self._drop_done()
        if self._started:
            self._timer = self._loop.call_at(self._started[0][0], self._expire)

    def _drop_done(self) -> None:
        while self._started and self._started[0][1].done():
            self._started.popleft()
