"""The log of the net: the machine's, with times, tails, offsets for operators, and messages that go before they are read."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from forwarder.topics.port import ConsumedMessage, GapFound, LogGap, LogUnavailable, Message, PartitionsChanged
from tests.net.worlds.log import PARTITIONS, TOPICS, GroupConsumer, GroupLog, Member, ProcessLog
from tests.net.worlds.ownership import Ownership
from tests.net.worlds.process import EPOCH, Process
from tests.net.worlds.virtual_time import VirtualTimeLoop

Heard = Callable[[Message], None]


class NetLog(GroupLog):
    """`on_result` hears each message of the results topic as it is appended."""

    def __init__(self, loop: VirtualTimeLoop, ownership: Ownership, on_result: Heard) -> None:
        super().__init__(loop, ownership)
        self._on_result = on_result
        self.first = [0] * PARTITIONS
        """The first offset of each partition that is still there."""
        self.times: dict[str, list[list[int]]] = {topic: [[] for _ in self.of(topic)] for topic in TOPICS.all()}

    def of(self, topic: str) -> list[list[Message]]:
        """The messages of each partition."""
        return self.requests if topic == TOPICS.requests else [self.written[topic]]

    def append(self, topic: str, messages: Sequence[Message]) -> None:
        super().append(topic, messages)
        for kept, times in zip(self.of(topic), self.times[topic], strict=True):
            times.extend([self._now_ms()] * (len(kept) - len(times)))
        if topic == TOPICS.results:
            for message in messages:
                self._on_result(message)

    def consumed(self, topic: str, partition: int, offset: int) -> ConsumedMessage:
        """The message at that place."""
        message = self.of(topic)[partition][offset]
        return ConsumedMessage(topic, partition, offset, self.times[topic][partition][offset], message)

    def take(self, member: Member, max_messages: int) -> list[ConsumedMessage]:
        found = super().take(member, max_messages)
        return [self.consumed(each.topic, each.partition, each.offset) for each in found]

    def drop(self, count: int) -> list[Message]:
        """The next `count` messages of each partition that nobody has received go, as by retention. Those that went."""
        gone: list[Message] = []
        for partition, kept in enumerate(self.requests):
            start = self.committed[partition]
            if start < len(kept):
                self.first[partition] = min(start + count, len(kept))
                gone += kept[start : self.first[partition]]
        self.rebalance()
        return gone

    def cut_off(self, count: int) -> list[Message]:
        """The last `count` messages of each partition go, as in an unclean election; the next get their offsets. Those that
        nobody had received."""
        gone: list[Message] = []
        for partition, kept in enumerate(self.requests):
            end = max(len(kept) - count, self.first[partition])
            gone += kept[max(end, self.committed[partition]) :]
            del kept[end:], self.times[TOPICS.requests][partition][end:]
            self.committed[partition] = min(self.committed[partition], end)
        self.rebalance()
        return gone

    def gaps(self, member: Member) -> list[LogGap]:
        """What of its partitions is gone before it came to it."""
        found = []
        for partition in sorted(member.assigned):
            position = member.next[partition]
            if position < self.first[partition]:
                found.append(LogGap(TOPICS.requests, partition, position, self.first[partition]))
        return found


class NetProcessLog(ProcessLog):
    """`Log` and `Publisher` of one process of the net."""

    def __init__(self, log: NetLog, process: Process) -> None:
        super().__init__(log, process)
        self.net_log = log

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator["NetProcessLog"]:
        yield self

    @asynccontextmanager
    async def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: Any = None
    ) -> AsyncIterator[GroupConsumer]:
        await self._process.awake()
        assert topic == TOPICS.requests
        member = Member(on_partitions, self._process)
        consumer = NetConsumer(self.net_log, self, self._process, member, on_gap)
        try:
            yield consumer
        finally:
            self.net_log.put_out(member)

    @asynccontextmanager
    async def tail(self, topic: str, *, from_beginning: bool = False) -> AsyncIterator["NetTail"]:
        yield self.new_tail(topic)

    def new_tail(self, topic: str) -> "NetTail":
        """One from the beginning, or from where it is told to begin."""
        return NetTail(self.net_log, self._process, topic)

    @asynccontextmanager
    async def admin(self) -> AsyncIterator["NetAdmin"]:
        self.require()
        yield NetAdmin(self.net_log)

    def require(self) -> None:
        """Raises where the process is cut off."""
        self._process.alive()
        if not self._process.reaches("log"):
            raise LogUnavailable("the log is away")


class NetConsumer(GroupConsumer):
    """One that reports messages that are gone."""

    def __init__(
        self, log: NetLog, steps: NetProcessLog, process: Process, member: Member, on_gap: GapFound | None
    ) -> None:
        super().__init__(log, steps, process, member)
        self._net_log, self._on_gap = log, on_gap

    async def _hear_of_partitions(self) -> None:
        await super()._hear_of_partitions()
        for gap in self._net_log.gaps(self.member):
            if self._on_gap is not None:
                await self._on_gap(gap)
            self.member.next[gap.partition] = gap.resumed_at
            self._net_log.committed[gap.partition] = max(self._net_log.committed[gap.partition], gap.resumed_at)


class NetTail:
    """`Tail`."""

    def __init__(self, log: NetLog, process: Process, topic: str) -> None:
        self._log, self._process, self._topic = log, process, topic
        self._next = dict.fromkeys(range(len(log.of(topic))), 0)

    def _require(self) -> None:
        self._process.alive()
        if not self._process.reaches("log"):
            raise LogUnavailable("the log is away")

    async def seek_to_end(self) -> None:
        self._require()
        self._next = {partition: len(kept) for partition, kept in enumerate(self._log.of(self._topic))}

    async def seek(self, offsets: Mapping[int, int]) -> None:
        self._next.update(offsets)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        await self._process.awake()
        found = self._take(max_messages)
        waited = 0.0
        while not found and waited < wait_seconds:
            pause = min(0.25, wait_seconds - waited) if wait_seconds - waited > 1e-9 else 0.0
            await self._process.clock.sleep(pause)
            waited += max(pause, 1e-3)
            found = self._take(max_messages)
        return found

    def _take(self, max_messages: int) -> list[ConsumedMessage]:
        self._require()
        found: list[ConsumedMessage] = []
        for partition, kept in enumerate(self._log.of(self._topic)):
            while self._next[partition] < len(kept) and len(found) < max_messages:
                found.append(self._log.consumed(self._topic, partition, self._next[partition]))
                self._next[partition] += 1
        return found

    async def positions(self) -> Mapping[int, int]:
        return dict(self._next)


class NetAdmin:
    """`TopicAdmin`, as far as workers and recovery use it."""

    def __init__(self, log: NetLog) -> None:
        self._log = log

    async def list(self) -> Mapping[str, int]:
        return {topic: len(self._log.of(topic)) for topic in TOPICS.all()}

    async def offsets(self, topic: str) -> Mapping[int, range]:
        first = self._log.first if topic == TOPICS.requests else [0]
        return {place: range(first[place], len(kept)) for place, kept in enumerate(self._log.of(topic))}

    async def offsets_at(self, topic: str, moments: Sequence[datetime]) -> Sequence[Mapping[int, int]]:
        return [_offsets_at(self._log, topic, moment) for moment in moments]

    async def committed(self, topic: str, *, group: str) -> Mapping[int, int]:
        return dict(enumerate(self._log.committed))

    async def retention(self, topic: str) -> timedelta | None:
        return None

    async def members(self, group: str) -> int | None:
        return len(self._log.members)

    async def describe(self, topics: Collection[str]) -> Mapping[str, Any]:
        return {}

    async def settings(self, topic: str) -> Mapping[str, str]:
        return {}


def _offsets_at(log: NetLog, topic: str, moment: datetime) -> Mapping[int, int]:
    wanted = (moment - EPOCH).total_seconds() * 1000 + EPOCH.timestamp() * 1000
    return {
        place: next((offset for offset, at in enumerate(times) if at >= wanted), len(times))
        for place, times in enumerate(log.times[topic])
    }
