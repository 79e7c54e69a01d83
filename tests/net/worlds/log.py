"""A log with partitions and one consumer group, at the log's own seam: it delivers again, rebalances, and loses acknowledgements.

Messages of one partition keep their order; a commit goes back as readily as forward.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from forwarder.topics.port import ConsumedMessage, Lag, LogUnavailable, Message, PartitionsChanged, Topics, partition_of
from tests.net.worlds.mishap import Effect
from tests.net.worlds.ownership import Ownership
from tests.net.worlds.process import EPOCH, Process
from tests.net.worlds.virtual_time import VirtualTimeLoop

TOPICS = Topics()
PARTITIONS = 2
SESSION_SECONDS = 20.0
"""Who is not heard of for so long is put out of the group."""


@dataclass(eq=False)
class Member:
    """Of the group. `assigned` is the group's word, `told` what its owner has heard of it."""

    on_partitions: PartitionsChanged
    process: Process
    assigned: frozenset[int] = frozenset()
    told: frozenset[int] | None = None
    next: dict[int, int] = field(default_factory=dict)


class GroupLog:
    """The log itself. Survives every worker."""

    def __init__(self, loop: VirtualTimeLoop, ownership: Ownership) -> None:
        self._loop = loop
        self.ownership = ownership
        self.requests: list[list[Message]] = [[] for _ in range(PARTITIONS)]
        self.written: defaultdict[str, list[Message]] = defaultdict(list)
        """What was published to the other topics, in order."""
        self.committed = [0] * PARTITIONS
        self.members: list[Member] = []

    def append(self, topic: str, messages: Sequence[Message]) -> None:
        for message in messages:
            if topic == TOPICS.requests:
                self.requests[partition_of(message.key, PARTITIONS, message.partition)].append(message)
            else:
                self.written[topic].append(message)

    def rebalance(self) -> None:
        """Partitions go round; each is read on from the last commit."""
        for place, member in enumerate(self.members):
            member.assigned = frozenset(range(place, PARTITIONS, len(self.members)))
            member.told = None
            member.next = {partition: self.committed[partition] for partition in member.assigned}

    def put_out(self, member: Member) -> None:
        """It has not been heard of for long."""
        if member in self.members:
            self.members.remove(member)
            member.assigned = frozenset()
            self.rebalance()

    def join(self, member: Member) -> None:
        self.members.append(member)
        self.rebalance()
        self._watch(member)

    def _watch(self, member: Member) -> None:
        if member.process.stopped_seconds >= SESSION_SECONDS:
            self.put_out(member)
        elif member in self.members:
            self._loop.call_later(SESSION_SECONDS / 2, self._watch, member)

    def take(self, member: Member, max_messages: int) -> list[ConsumedMessage]:
        """The next messages, from each partition in turn."""
        found: list[ConsumedMessage] = []
        for partition in sorted(member.assigned):
            start = member.next[partition]
            for offset, message in enumerate(self.requests[partition][start:], start):
                if len(found) < max_messages:
                    found.append(ConsumedMessage(TOPICS.requests, partition, offset, self._now_ms(), message))
                    member.next[partition] = offset + 1
        return found

    def commit(self, member: Member, deliveries: Sequence[ConsumedMessage]) -> None:
        for delivery in deliveries:
            if delivery.partition in member.assigned:
                self.committed[delivery.partition] = delivery.offset + 1

    @property
    def read(self) -> bool:
        """Whether everything was read and committed."""
        return self.committed == [len(messages) for messages in self.requests]

    def _now_ms(self) -> int:
        return round(EPOCH.timestamp() * 1000 + self._loop.time() * 1000)


class ProcessLog:
    """`Log` and `Publisher` as one process has them; each publish, and each commit of offsets, is one step."""

    def __init__(self, log: GroupLog, process: Process) -> None:
        self._log = log
        self._process = process

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        async with self.step("publish", lambda part: self._log.append(topic, messages[: len(messages) // part])):
            self._log.append(topic, messages)

    def partition(self, topic: str, key: str) -> int | None:
        return partition_of(key.encode(), PARTITIONS) if topic == TOPICS.requests else None

    async def ready(self) -> bool:
        return True

    @asynccontextmanager
    async def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: object = None
    ) -> AsyncIterator["GroupConsumer"]:
        await self._process.awake()
        assert topic == TOPICS.requests
        consumer = GroupConsumer(self._log, self, self._process, Member(on_partitions, self._process))
        try:
            yield consumer
        finally:
            self._log.put_out(consumer.member)

    @asynccontextmanager
    async def step(self, name: str, partly: Any = None) -> AsyncIterator[None]:
        """What is carried out within. `partly` carries out a part of it, where it fails before it is through."""
        process = self._process
        await process.awake()
        if not process.reaches("log"):
            raise LogUnavailable("the log is away")
        mishap = process.mishaps.ahead("log", name)
        if mishap is not None:
            if mishap.effect is Effect.REFUSED and partly is not None and mishap.seconds:
                partly(2)
            await process.suffer(mishap)
            if mishap.effect is Effect.REFUSED:
                raise LogUnavailable("not acknowledged")
        mishap = process.mishaps.step("log", name)
        yield
        if mishap is not None:
            await process.suffer(mishap)
            if mishap.effect is Effect.UNANSWERED:
                raise LogUnavailable("not acknowledged, and stored")


class GroupConsumer:
    """See `Consumer`. Joins at its first `receive`, and again after it was put out."""

    def __init__(self, log: GroupLog, steps: ProcessLog, process: Process, member: Member) -> None:
        self._log = log
        self._steps = steps
        self._process = process
        self.member = member

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        await self._process.awake()
        if not self._process.reaches("log"):
            raise LogUnavailable("the log is away")
        await self._hear_of_partitions()
        found = self._log.take(self.member, max_messages)
        if found:
            return found
        await self._process.clock.sleep(wait_seconds)
        return self._log.take(self.member, max_messages) if self.member.told == self.member.assigned else ()

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {}

    async def commit(self, deliveries: Sequence[ConsumedMessage]) -> None:
        async with self._steps.step("commit"):
            self._log.commit(self.member, deliveries)

    async def lag(self) -> Sequence[Lag]:
        return [
            Lag(partition, len(self._log.requests[partition]) - self._log.committed[partition])
            for partition in self.member.assigned
        ]

    async def _hear_of_partitions(self) -> None:
        member = self.member
        if member not in self._log.members:
            self._log.join(member)
        while member.told != member.assigned:
            if member.told is None:
                self._log.ownership.told(self._process, frozenset(), self._process.loop.time())
                await member.on_partitions(frozenset())
            told = member.assigned
            self._log.ownership.told(self._process, told, self._process.loop.time())
            await member.on_partitions(told)
            member.told = told if told == member.assigned else None
