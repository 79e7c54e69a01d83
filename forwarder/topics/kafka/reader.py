"""Taking messages out of one aiokafka consumer, and noticing when the brokers have fallen silent.

Touches that consumer alone. aiokafka itself does not tell: through an outage it retries, and hands out nothing.

Of a batch that it cannot read (a header's name that is no UTF-8, a codec that is not installed) aiokafka raises the same error for
ever, and with it go the records of other partitions that it had taken up. So after the first such error its owner begins anew with
a `careful` reader, which asks for one record of one partition at a time: then nothing is lost with the error, and it is known where
it stands. There an empty message is delivered in the place of each record that stays unreadable.
"""

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError

from forwarder.topics.kafka.connection import KafkaConnection, closable, look_at, milliseconds, reaching_kafka
from forwarder.topics.port import UNREADABLE, ConsumedMessage, LogUnavailable, Message

_log = logging.getLogger(__name__)
_Batches = Mapping[TopicPartition, Sequence[ConsumerRecord]]
_NO_PARTITION = None
_CAREFUL_READS = 1_000  # records in a row that could be read, after which a reader is careful no more
_TRIES = 3  # a broken connection may garble a batch once

CannotRead = (CorruptRecordException, UnsupportedCodecError, UnicodeDecodeError)
"""What aiokafka raises for a batch that is not to be read; its two implementations of reading one do not raise the same."""
_COORDINATOR_TASKS = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")
_CANCELLED_SECONDS = 1.0  # for aiokafka's tasks to notice
_ANSWER_SECONDS = 0.05  # for aiokafka to say that nothing came
_LOOK_MILLISECONDS = 50  # for one partition to have something, where it is asked by itself


class KafkaReader:
    """What `KafkaConsumer` and `KafkaTail` share. One caller at a time."""

    def __init__(self, consumer: AIOKafkaConsumer, connection: KafkaConnection, *, careful: bool = False) -> None:
        self.consumer = consumer
        self._careful_reads = _CAREFUL_READS if careful else 0
        self._failures: dict[TopicPartition, tuple[int, int]] = {}
        """Of each partition, how often what stands at an offset could not be read."""
        self._connection = connection
        self._fetch: asyncio.Task[_Batches] | None = None
        self._left: deque[ConsumedMessage] = deque()
        self._answers: dict[TopicPartition, int | None] = {}
        self._silent_seconds: dict[TopicPartition | None, float] = {}

    async def take(self, max_messages: int, wait_seconds: float) -> list[ConsumedMessage]:
        """The next messages; empty when none came within `wait_seconds`.

        Raises `LogUnavailable` when one of the partitions was not heard of during `silence_seconds` of waiting. May be
        cancelled without losing a message.
        """
        if not self._left:
            await self._refill(max_messages, wait_seconds)
        return [self._left.popleft() for _ in range(min(max_messages, len(self._left)))]

    def discard(self) -> None:
        """Forget what was fetched and not yet taken: it is of partitions that are being given up."""
        self._left.clear()
        if self._fetch is not None and self._fetch.done():
            self._fetch = None

    def close(self) -> None:
        """Stop waiting for what was asked of the consumer."""
        if self._fetch is not None:
            self._fetch.cancel()
            self._fetch.add_done_callback(look_at)

    async def _refill(self, max_messages: int, wait_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        # A task of its own, which a later call finds again: aiokafka waits without limit while a group rebalances, and
        # does not bear being cancelled (it would take this member for one that is polling, for ever).
        fetch = self._fetch or loop.create_task(self._ask(max_messages, wait_seconds))
        self._fetch = fetch
        await asyncio.wait({fetch}, timeout=wait_seconds + _ANSWER_SECONDS)
        if fetch.done() and self._fetch is fetch:
            self._fetch = None
            self._left.extend(_deliveries(fetch.result()))
        self._listen(loop.time() - began)
        if not self._left:
            await self._complain_of_silence()

    async def _ask(self, max_messages: int, wait_seconds: float) -> _Batches:
        if self._careful_reads:
            return await self._ask_carefully(max_messages, wait_seconds)
        batches: _Batches = await self.consumer.getmany(timeout_ms=milliseconds(wait_seconds), max_records=max_messages)
        return batches

    async def _ask_carefully(self, max_messages: int, wait_seconds: float) -> _Batches:
        """One record at a time, so that none goes with an error that is another's."""
        found: dict[TopicPartition, list[ConsumerRecord]] = defaultdict(list)
        wait = milliseconds(wait_seconds)
        try:
            for _ in range(max_messages):
                batches = await self.consumer.getmany(timeout_ms=wait, max_records=1)
                if not batches:
                    break
                for partition, records in batches.items():
                    found[partition] += records
                self._careful_reads = max(self._careful_reads - 1, 0)
                wait = 0
        except CannotRead:
            self._careful_reads = _CAREFUL_READS
            return found or await self._look_for_unreadable()
        return found

    async def _look_for_unreadable(self) -> _Batches:
        """Of which partition it spoke, aiokafka does not say: each is asked by itself."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for partition in sorted(self.consumer.assignment()):
            try:
                found |= await self.consumer.getmany(partition, timeout_ms=_LOOK_MILLISECONDS, max_records=1)
            except CannotRead as error:
                found[partition] = await self._past(partition, error)
        return found

    async def _past(self, partition: TopicPartition, error: Exception) -> list[ConsumerRecord]:
        """Whatever stands where `partition` is read next, as a record that says that it cannot be; none while it may yet be."""
        offset = await self.consumer.position(partition)
        known, failures = self._failures.get(partition, (offset, 0))
        failures = failures + 1 if known == offset else 1
        self._failures[partition] = (offset, failures)
        if failures < _TRIES:
            return []
        _log.error("kafka record not readable", extra={"partition": partition, "offset": offset, "error": repr(error)})
        self.consumer.seek(partition, offset + 1)
        return [_unreadable(partition, offset, error)]

    def _listen(self, waited: float) -> None:
        """Count the waiting against every partition that no broker has answered for meanwhile."""
        assigned = self.consumer.assignment()
        answers = {partition: self.consumer.last_poll_timestamp(partition) for partition in assigned}
        silent = [each for each in assigned if each in self._answers and answers[each] == self._answers[each]]
        counted = silent if assigned else [_NO_PARTITION]
        self._silent_seconds = {each: self._silent_seconds.get(each, 0.0) + waited for each in counted}
        self._answers = answers

    async def _complain_of_silence(self) -> None:
        limit = self._connection.silence_seconds
        silent = [each for each, seconds in self._silent_seconds.items() if seconds >= limit]
        if silent == [_NO_PARTITION]:
            # With nothing to fetch there is nothing to be heard: ask.
            async with reaching_kafka("look for the brokers", within=self._connection.request_timeout_seconds):
                await self.consumer.topics()
            self._silent_seconds.clear()
        elif silent:
            raise LogUnavailable(f"no broker has answered for {len(silent)} of the partitions within {limit:g} s")


async def stop(consumer: AIOKafkaConsumer, connection: KafkaConnection) -> None:
    """Leave the group, if any, and close the connections.

    Brokers that do not answer are waited for during one session: then the group gives the member up by itself.
    """
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait({stopping}, timeout=connection.session_timeout_seconds)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait({stopping})
    if stopping.cancelled() or stopping.exception() is not None:
        _log.info("kafka consumer closed out of order")
        await _abandon(consumer)


async def _abandon(consumer: AIOKafkaConsumer) -> None:
    """Do what is left of aiokafka's own `stop`, which gives up half-way where a fetch was under way in an outage.

    A heartbeat left running would keep the member in its group for ever.
    """
    left = [getattr(consumer._coordinator, name, None) for name in _COORDINATOR_TASKS]  # noqa: SLF001
    if consumer._fetcher is not None:  # noqa: SLF001
        left += [consumer._fetcher._fetch_task, *consumer._fetcher._pending_tasks]  # noqa: SLF001
    running = [task for task in left if task is not None]
    for task in running:
        task.cancel()
        task.add_done_callback(look_at)
    if running:
        await asyncio.wait(running, timeout=_CANCELLED_SECONDS)
    await closable(consumer._client).close()  # noqa: SLF001


def _unreadable(partition: TopicPartition, offset: int, error: Exception) -> ConsumerRecord:
    """What is delivered in the place of a record that cannot be read. It has the time of now: its own is not known."""
    headers = ((UNREADABLE, type(error).__name__.encode()),)
    now = time.time_ns() // 1_000_000
    return ConsumerRecord(partition.topic, partition.partition, offset, now, 0, None, None, None, -1, -1, headers)


def _deliveries(batches: _Batches) -> Iterator[ConsumedMessage]:
    for records in batches.values():
        for record in records:
            # Kafka has null for each of them, and we have not.
            headers = tuple((name, value or b"") for name, value in record.headers)
            message = Message(record.key or b"", record.value or b"", headers)
            yield ConsumedMessage(record.topic, record.partition, record.offset, record.timestamp, message)
