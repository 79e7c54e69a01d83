"""Reads messages from one aiokafka consumer, and notices when the brokers stop answering.

aiokafka does not report an outage: it retries, and returns nothing.

For a batch that it cannot read aiokafka keeps raising the same error, and loses the records of other partitions that it had
fetched. So after the first such error the owner starts again with a `careful` reader, which asks for one record of one partition
at a time: then an error costs no other record, and its place is known. What follows depends on the error:

- A header name that is not UTF-8 is the record's own fault, and no other process could read it either: an empty message is
  delivered in its place.
- Anything else (a codec that is not installed, a version that the driver does not know, a checksum that does not match) is an
  outage of this process. The partition waits at that offset, the others go on, and it is tried again every few seconds."""

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, cast

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, errors
from aiokafka.errors import KafkaError

from forwarder.process.loops import CROWD
from forwarder.topics.kafka import internals
from forwarder.topics.kafka.connection import KafkaConnection, milliseconds, reaching_kafka
from forwarder.topics.port import UNREADABLE, ConsumedMessage, LogUnavailable, LogUnreadable, Message

_log = logging.getLogger(__name__)
_Records = Mapping[TopicPartition, Sequence[ConsumerRecord]]
_NO_PARTITION = None
_CAREFUL_READS = 1_000  # readable records in a row after which a reader is careful no more
_TRIES = 3  # a broken connection may corrupt a batch once
_AGAIN_SECONDS = 5.0  # between two tries to read what could not be read here


class CannotRead(Exception):
    """Aiokafka cannot read the next batch of a partition. The cause is its own error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.name = type(error).__name__
        # The Python implementation wraps what the one in C raises.
        self.by_content = isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError)
        self.remedy = (
            "its batch is damaged, or of a kind that this version cannot read. Compare the replicas of the partition; to give the "
            "batch up, stop the group and move its offset behind it with kafka-consumer-groups --reset-offsets"
        )
        if isinstance(error, errors.UnsupportedCodecError):
            self.remedy = (
                "the package cramjam is missing from this process's environment: install what requirements.lock names"
            )


async def fetched(
    consumer: AIOKafkaConsumer, *partitions: TopicPartition, timeout_ms: int, max_records: int
) -> _Records:
    """As `getmany`. Raises `CannotRead`; `KafkaError` for anything that is not about the content of a batch."""
    try:
        return cast("_Records", await consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records))
    except (errors.CorruptRecordException, errors.UnsupportedCodecError) as error:
        raise CannotRead(error) from error
    except (KafkaError, errors.ConsumerStoppedError):
        raise
    except Exception as error:  # each codec has errors of its own
        raise CannotRead(error) from error


class _Waiting(NamedTuple):
    """Where a partition waits until it can be read, and when to try again, by the loop's clock."""

    offset: int
    error: CannotRead
    again_at: float


class KafkaReader:
    """Shared by `KafkaConsumer` and `KafkaTail`. One caller at a time."""

    def __init__(self, consumer: AIOKafkaConsumer, connection: KafkaConnection, *, careful: bool = False) -> None:
        self.consumer = consumer
        self._careful_reads = _CAREFUL_READS if careful else 0
        self._failures: dict[TopicPartition, tuple[int, int]] = {}  # an offset, and how often reading it failed
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._failed: list[TopicPartition] = []
        """The waiting partitions that were retried since the caller was last notified."""
        self._connection = connection
        self.metadata = internals.metadata_task(internals.client_of(consumer))
        self._fetch: asyncio.Task[_Records] | None = None
        self._fetched: deque[ConsumedMessage] = deque()
        self._last_polls: dict[TopicPartition, int | None] = {}
        self._silent_seconds: dict[TopicPartition | None, float] = {}

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {each.partition: waiting.offset for each, waiting in self._waiting.items()}

    async def take(self, max_messages: int, wait_seconds: float) -> list[ConsumedMessage]:
        """The next messages; empty when none came within `wait_seconds`. Raises `LogUnavailable` if no broker has answered for one
        of the partitions during `silence_seconds` of waiting; `LogUnreadable`, for each try, where one cannot be read here and the
        others have nothing; `CannotRead` unless it is careful. May be cancelled without losing a message."""
        if not self._fetched:
            await self._refill(max_messages, wait_seconds)
        return [self._fetched.popleft() for _ in range(min(max_messages, len(self._fetched)))]

    def discard(self) -> None:
        """Drops fetched messages that were not taken, and stops waiting for unreadable ones: the partitions are being given up, or
        read from another offset."""
        self._fetched.clear()
        self._give_up_waiting()
        if self._fetch is not None and self._fetch.done():
            self._fetch = None

    async def close(self) -> None:
        """Stops waiting for a fetch, and for what cannot be read; then as `stop_consumer`."""
        self._give_up_waiting()
        if self._fetch is not None:
            self._fetch.cancel()
            self._fetch.add_done_callback(internals.retrieve_exception)
        await internals.stop_consumer(self.consumer, self._connection)

    def _give_up_waiting(self) -> None:
        for partition, waiting in self._waiting.items():
            if partition in self.consumer.assignment():
                self.consumer.resume(partition)
            topic, number = partition
            _log.info("partition.given_up", extra={"topic": topic, "partition": number, "offset": waiting.offset})
        self._waiting.clear()
        self._failed.clear()

    async def _refill(self, max_messages: int, wait_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        # A separate task, which a later call picks up again: aiokafka waits without limit while a group rebalances, and must not be
        # cancelled (it would count this member as polling forever).
        fetch = self._fetch or loop.create_task(self._fetch_records(max_messages, wait_seconds))
        self._fetch = fetch
        # A little longer than aiokafka's own time-out, after which it returns empty-handed.
        await asyncio.wait({fetch}, timeout=wait_seconds + 0.05)
        if fetch.done() and self._fetch is fetch:
            self._fetch = None
            for record in chain.from_iterable(fetch.result().values()):
                headers = tuple(record.headers)
                # Each of them may be null in Kafka, but not here.
                if None in [value for _, value in headers]:
                    headers = tuple([(name, value or b"") for name, value in headers])
                message = Message(record.key or b"", record.value or b"", headers)
                place = (record.topic, record.partition, record.offset, record.timestamp)
                self._fetched.append(ConsumedMessage(*place, message))
        # Count the waiting time for every partition that no broker has answered for meanwhile.
        assigned = self.consumer.assignment() - self._waiting.keys()
        polls = {partition: self.consumer.last_poll_timestamp(partition) for partition in assigned}
        counted = [each for each in assigned if each in self._last_polls and polls[each] == self._last_polls[each]]
        counted = counted if assigned else [_NO_PARTITION]
        waited = loop.time() - began
        self._silent_seconds = {each: self._silent_seconds.get(each, 0.0) + waited for each in counted}
        self._last_polls = polls
        if self._fetched:
            return
        failed, self._failed = [each for each in self._failed if each in self._waiting], []
        if failed:
            waiting = self._waiting[failed[0]]
            raise LogUnreadable(
                f"{failed[0].topic}: partition {failed[0].partition} cannot be read from offset {waiting.offset} on "
                f"({waiting.error}): {waiting.error.remedy}"
            )
        limit = self._connection.silence_seconds
        silent = [each for each, seconds in self._silent_seconds.items() if seconds >= limit]
        if silent == [_NO_PARTITION]:
            # Without a partition nothing is fetched, so nothing can answer: ask the brokers something.
            async with reaching_kafka("reach the brokers", within=self._connection.request_timeout_seconds):
                await self.consumer.topics()
            self._silent_seconds.clear()
        elif silent:
            raise LogUnavailable(f"no broker has answered for {len(silent)} of the partitions within {limit:g} s")

    async def _fetch_records(self, max_messages: int, wait_seconds: float) -> _Records:
        if self._waiting and (readable := await self._try_again(max_messages)):
            return readable
        if self._careful_reads:
            return await self._fetch_carefully(max_messages, wait_seconds)
        ready = await fetched(self.consumer, timeout_ms=milliseconds(wait_seconds), max_records=max_messages)
        count = sum(map(len, ready.values()))
        if not CROWD <= count < max_messages:
            return ready
        # aiokafka fetched these right after the last call, and nothing from their partitions since. Fetch newer messages now, so
        # that they need not wait for the caller's next call; within 5 ms, as they are on the broker already.
        newer: _Records = {}
        with suppress(errors.NoOffsetForPartitionError, errors.OffsetOutOfRangeError):  # raised again by the next fetch
            newer = await fetched(self.consumer, timeout_ms=5, max_records=max_messages - count)
        return {each: [*ready.get(each, ()), *newer.get(each, ())] for each in {**ready, **newer}}

    async def _fetch_carefully(self, max_messages: int, wait_seconds: float) -> _Records:
        """One record at a time, so that an error costs no other record."""
        found: dict[TopicPartition, list[ConsumerRecord]] = defaultdict(list)
        wait = milliseconds(wait_seconds)
        try:
            for _ in range(max_messages):
                batches = await fetched(self.consumer, timeout_ms=wait, max_records=1)
                if not batches:
                    break
                for partition, records in batches.items():
                    found[partition] += records
                self._careful_reads = max(self._careful_reads - 1, 0)
                wait = 0
        except CannotRead:
            self._careful_reads = _CAREFUL_READS
            # aiokafka does not say which partition its error is about: ask each on its own, for 50 ms.
            suspects = [] if found else sorted(self.consumer.assignment() - self._waiting.keys())
            for partition in suspects:
                try:
                    found |= await fetched(self.consumer, partition, timeout_ms=50, max_records=1)
                except CannotRead as error:
                    found[partition] = await self._skip_or_wait(partition, error)
        except (errors.NoOffsetForPartitionError, errors.OffsetOutOfRangeError):
            if not found:
                raise  # else the next fetch does
        return found

    async def _skip_or_wait(self, partition: TopicPartition, error: CannotRead) -> list[ConsumerRecord]:
        """A record marked unreadable in place of the next one of `partition`, where that is its own fault. None while another try
        may still read it, and where the partition waits from now on."""
        offset = await self.consumer.position(partition)
        known, failures = self._failures.get(partition, (offset, 0))
        failures = failures + 1 if known == offset else 1
        self._failures[partition] = offset, failures
        if failures < _TRIES:
            return []
        (topic, number), why = partition, str(error)
        if error.by_content:
            _log.error("record.unreadable", extra={"topic": topic, "partition": number, "offset": offset, "error": why})
            self.consumer.seek(partition, offset + 1)
            headers = ((UNREADABLE, error.name.encode()),)
            now = time.time_ns() // 1_000_000  # the record's own time is unknown
            return [ConsumerRecord(*partition, offset, now, 0, None, None, None, -1, -1, headers)]
        _log.error(
            "partition.unreadable",
            extra={"topic": topic, "partition": number, "offset": offset, "error": why, "remedy": error.remedy},
        )
        self._wait(partition, offset, error)
        return []

    def _wait(self, partition: TopicPartition, offset: int, error: CannotRead) -> None:
        self.consumer.pause(partition)
        self._waiting[partition] = _Waiting(offset, error, asyncio.get_running_loop().time() + _AGAIN_SECONDS)
        self._failed.append(partition)

    async def _try_again(self, max_messages: int) -> _Records:
        now = asyncio.get_running_loop().time()
        for partition, waiting in [each for each in self._waiting.items() if each[1].again_at <= now]:
            if self._waiting.get(partition) is not waiting:
                continue  # given up during the tries before
            self.consumer.resume(partition)
            found, error = cast("_Records", {}), waiting.error
            try:
                # A request for other partitions may be under way, and takes half of this second.
                found = await fetched(self.consumer, partition, timeout_ms=1_000, max_records=max_messages)
                position = 0 if found else await self.consumer.position(partition)
                readable = bool(found) or position >= (self.consumer.highwater(partition) or position + 1)
            except CannotRead as again:
                readable, error = False, again
            if self._waiting.get(partition) is waiting:  # else given up during this try
                del self._waiting[partition]
                if readable:
                    (topic, number), offset = partition, waiting.offset
                    _log.info("partition.readable_again", extra={"topic": topic, "partition": number, "offset": offset})
                else:
                    self._wait(partition, waiting.offset, error)
            if found:
                return found
        return {}
