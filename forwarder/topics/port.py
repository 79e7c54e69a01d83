"""The port for the log, independent of the backend; and how to read all that a topic holds, on any backend.

Exception
├── LogUnavailable       the only one a caller must expect; each backend translates its driver's errors into it, in one place
│   ├── GroupBusy        embedded only: another process is the group's one consumer
│   └── LogUnreadable    Kafka only: this process cannot read what the brokers have, such as a batch in a codec that it lacks
└── ValueError
    └── MessageTooLarge  the topic takes no message of that size"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Protocol

from forwarder.process.loading import load
from forwarder.reservation.fast import value
from forwarder.reservation.parsing import unix_moment

Headers = tuple[tuple[str, bytes], ...]
UNREADY_SECONDS = 5.0
"""After a failed publish a publisher is not ready for so long, or until one succeeds. Not longer, because an unready process gets
no requests and could never show that it works again."""
MAX_MESSAGE_BYTES = 1_000_000
"""The maximum size of a message with its key and headers: what Kafka brokers accept by default."""


class LogUnavailable(Exception):
    """The log is unavailable, or did not acknowledge in time. A message being published may or may not be stored."""


class GroupBusy(LogUnavailable):
    """The embedded log allows one consumer for each group and topic, and there already is one."""


class LogUnreadable(LogUnavailable):
    """This process cannot read a message of the log. The text says where, why, and what to do. Nothing is skipped."""


class MessageTooLarge(ValueError):
    """The topic does not accept some of the messages; retrying does not help. All others of the call are published. `sizes`: of
    each refused message, by its index in the call. `limit`: the topic's, with overhead, if the log reports it. Both in bytes."""

    def __init__(self, sizes: Mapping[int, int], limit: int | None) -> None:
        takes = "less" if limit is None else f"at most {limit:,}"
        super().__init__(f"a message has {max(sizes.values()):,} bytes, and its topic takes {takes}")
        self.sizes, self.limit = sizes, limit


@value(frozen=True, slots=True)
class Message:
    """A message to publish. Messages of one key keep their order; `value` is UTF-8 JSON. `partition` overrides the key's partition;
    None, or more than the topic has, leaves it to the key. Received messages have none."""

    key: bytes
    value: bytes
    headers: Headers = ()
    partition: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the key, the value and the headers: at least as many as on the wire."""
        # 10 bytes per header: two lengths of up to five bytes.
        headers = sum(len(name.encode()) + len(content) + 10 for name, content in self.headers)
        return len(self.key) + len(self.value) + headers


def partition_of(key: bytes, partitions: int, chosen: int | None = None) -> int:
    """The partition of `key` among `partitions`: by murmur2, like Kafka's default partitioner, so that all clients agree; or the
    `chosen` one, if it exists."""
    return chosen if chosen is not None and chosen < partitions else _positive_hash(key) % partitions


@lru_cache(maxsize=16_384)  # murmur2 is pure Python, and the keys of properties repeat
def _positive_hash(key: bytes) -> int:
    return int(load("aiokafka.partitioner:murmur2")(key)) & 0x7FFFFFFF


def headers_as_text(headers: Headers) -> str:
    """For a file. Each byte is the character with its number: any bytes can be stored, and text stays readable."""
    return json.dumps([(name, value.decode("latin-1")) for name, value in headers])


def headers_from_text(text: str) -> Headers:
    return tuple((name, value.encode("latin-1")) for name, value in json.loads(text))


def too_large(messages: Sequence[Message]) -> MessageTooLarge | None:
    """The error for those of `messages` that are too large for every backend; None if there are none."""
    sizes = {index: message.size for index, message in enumerate(messages) if message.size > MAX_MESSAGE_BYTES}
    return MessageTooLarge(sizes, MAX_MESSAGE_BYTES) if sizes else None


UNREADABLE = "unreadable"
"""The header of an empty message that replaces one that no process can read. Its value is the class of the error."""


def moment_of(milliseconds: int) -> datetime:
    """The moment in UTC; 1970 if it is out of range, because a log may let writers set arbitrary times."""
    return unix_moment(milliseconds / 1000) or datetime(1970, 1, 1, tzinfo=UTC)


@value(frozen=True, slots=True)
class ConsumedMessage:
    """A message and its place in the log. `timestamp_ms` is when the log appended it, in milliseconds since 1970 (`moment_of`)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    message: Message


@dataclass(frozen=True, slots=True)
class Lag:
    """A group's lag in one partition: `messages` not yet committed, the oldest appended at `oldest_at`; None if not reported."""

    partition: int
    messages: int
    oldest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic's replication: `replicas`, and those of them `in_sync`; each the minimum over its partitions."""

    partitions: int
    replicas: int
    in_sync: int


class Topics:
    """The names of the topics, with an optional prefix (for example `staging.`)."""

    def __init__(self, prefix: str = "") -> None:
        self.requests: Final = f"{prefix}reservations.requests"
        self.results: Final = f"{prefix}reservations.results"
        self.dead_letters: Final = f"{prefix}reservations.requests-dlt"

    def all(self) -> tuple[str, ...]:
        return (self.requests, self.results, self.dead_letters)


class Publisher(Protocol):
    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Return once every in-sync replica has all of `messages` (embedded: once they are synced to disk). Concurrent calls share
        batches. Messages of one call and one key are stored in order and once each, even if the driver had to retry. Raises
        `LogUnavailable` if this was not acknowledged within the publisher's time limit; else `MessageTooLarge`."""

    def partition(self, topic: str, key: str) -> int | None:
        """The partition of `topic` that messages with `key` go to now; None while that is not known."""

    async def ready(self) -> bool:
        """Whether a publish is expected to succeed now. Never raises; returns within a second."""


PartitionsChanged = Callable[[frozenset[int]], Awaitable[None]]
"""Awaited with the partitions that this member now owns, before it receives anything from them; empty if it owns none, and then as
soon as it loses them: offsets can still be committed."""


@value(frozen=True, slots=True)
class LogGap:
    """The log no longer has the group's `position`: messages of `topic` were deleted before the group received them, or the topic
    was recreated. The group continues at `resumed_at`. `missing`: how many offsets it lost; None (unknown) if the log ends before
    `position`."""

    topic: str
    partition: int
    position: int
    resumed_at: int

    @property
    def missing(self) -> int | None:
        return self.resumed_at - self.position if self.resumed_at > self.position else None


GapFound = Callable[[LogGap], Awaitable[None]]
"""Awaited before the group continues after a gap. If it raises, `receive` raises that, and the gap is found again."""


class Consumer(Protocol):
    """One member of a consumer group on one topic. Delivers at least once, in order within a partition."""

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """The next messages not yet received by this member, up to `max_messages`. Empty if none came within `wait_seconds`, and
        never earlier: not after a rebalance or a gap either. Starts after the group's last commit, or at the beginning. A `LogGap`
        is passed to `on_gap`, and committed, before any message after the gap is returned."""

    @property
    def unreadable(self) -> Mapping[int, int]:
        """The offset at which each partition waits that this process cannot read at present. The others continue."""

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        """Returns once the offset after each of `messages` is durably committed. A partition lost meanwhile is skipped: its new
        owner receives those messages again. Raises `LogUnavailable`; uncommitted messages are delivered again."""


class Tail(Protocol):
    """Reads every partition of one topic outside any group; commits nothing."""

    async def seek_to_end(self) -> None:
        """Skips existing messages. Everything published after this returns will be received."""

    async def seek(self, offsets: Mapping[int, int]) -> None:
        """Continue, in these partitions, at these offsets, which the topic holds."""

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """See `Consumer.receive`. Every call raises `LogUnreadable` while this process cannot read one of the partitions."""

    async def positions(self) -> Mapping[int, int]:
        """For each partition, the offset after the last received message, and after Kafka's transaction markers behind it."""


class TopicAdmin(Protocol):
    async def create(
        self, partitions: Mapping[str, int], *, retention: timedelta | None = None, replicas: int | None = None
    ) -> Sequence[str]:
        """Creates each topic that does not exist yet, with the given number of partitions; returns the names of those created.
        `retention`: None for the log's default. `replicas`: None for three, or as many as there are brokers; embedded: one."""

    async def grow(self, partitions: Mapping[str, int]) -> None:
        """Gives each of these topics that many partitions, more than it has. Keys then have other partitions. The embedded log
        raises `NotImplementedError`."""

    async def list(self) -> Mapping[str, int]:
        """The existing topics and their number of partitions."""

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """The states of those `topics` that exist."""

    async def members(self, group: str) -> int | None:
        """The number of members of the group now; None if the log does not report it."""

    async def offsets(self, topic: str) -> Mapping[int, range]:
        """For each partition of `topic`, the offsets it holds now; `stop` is that of the next message. Empty without the topic."""

    async def offsets_at(self, topic: str, moments: Sequence[datetime]) -> Sequence[Mapping[int, int]]:
        """For each of `moments` and each partition of `topic`, the offset of the first message appended then or later, or else of
        the next message. Empty mappings without the topic."""

    async def settings(self, topic: str) -> Mapping[str, str]:
        """The settings of `topic`, which exists, by Kafka's names; empty if the log has no topic settings."""

    async def retention(self, topic: str) -> timedelta | None:
        """The minimum time that `topic`, which exists, keeps a message; None for forever."""

    async def committed(self, topic: str, *, group: str) -> Mapping[int, int]:
        """For each partition of `topic` in which the group has committed, the offset at which it would continue."""

    async def lag(self, topic: str, *, group: str) -> Sequence[Lag]:
        """The group's lag in each partition of `topic`, whether the group has members or not. Empty if there is no such topic."""


class Log(Protocol):
    """One backend. Each part is opened and closed by `async with`: on exit a publisher flushes and a member leaves its group."""

    def publisher(self) -> AbstractAsyncContextManager[Publisher]: ...

    def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: GapFound | None = None
    ) -> AbstractAsyncContextManager[Consumer]: ...

    def tail(self, topic: str, *, from_beginning: bool = False) -> AbstractAsyncContextManager[Tail]: ...

    def admin(self) -> AbstractAsyncContextManager[TopicAdmin]: ...


async def read_to_end(
    log: Log, topic: str, *, since: datetime | None = None
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    """The messages that `topic` holds at the time of the call, in batches, each partition in order; nothing if there is no such
    topic. `since`: only from the first message of each partition that was appended at that time or later. Skips messages that are
    deleted meanwhile. Raises `LogUnavailable`, also if messages that the log should hold do not arrive."""
    async with log.admin() as admin:
        ends = {partition: held.stop for partition, held in (await admin.offsets(topic)).items() if held}
        if not ends:
            return
        left = dict(ends)
        async with log.tail(topic, from_beginning=True) as tail:
            if since is not None:
                (first,) = await admin.offsets_at(topic, [since])
                await tail.seek(first)
                left = {partition: end for partition, end in ends.items() if first.get(partition, 0) < end}
            async for found in _until(left, tail, admin, topic):
                yield found


async def read_last(
    log: Log, topic: str, count: int, *, before: Mapping[int, int] | None = None
) -> Sequence[ConsumedMessage]:
    """The last `count` messages of each partition of `topic`: of all, or of those before the given offsets, and then only in the
    partitions that are named. Raises as `read_to_end`."""
    async with log.admin() as admin:
        held = await admin.offsets(topic)
        ends = {
            part: kept.stop if before is None else min(before.get(part, 0), kept.stop) for part, kept in held.items()
        }
        firsts = {part: max(held[part].start, end - count) for part, end in ends.items()}
        left = {part: end for part, end in ends.items() if firsts[part] < end}
        if not left:
            return []
        async with log.tail(topic) as tail:
            await tail.seek({part: firsts[part] for part in left})
            return [each async for found in _until(left, tail, admin, topic) for each in found]


async def _until(
    ends: Mapping[int, int], tail: Tail, admin: TopicAdmin, topic: str
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    """The messages of `tail` before `ends`, in the partitions that these name."""
    left, empty_reads = dict(ends), 0
    while left:
        batch = await tail.receive(max_messages=500, wait_seconds=0.5)
        empty_reads = 0 if batch else empty_reads + 1
        if empty_reads == 60:  # noqa: PLR2004 - half a minute
            raise LogUnavailable(f"{topic}: the last messages of {len(left)} of its partitions did not come")
        reached = {each.partition: each.offset + 1 for each in batch}
        if not batch:
            # Messages that are missing were deleted during the read, or the remaining records are no messages.
            reached, held = dict(await tail.positions()), await admin.offsets(topic)
            left = {part: end for part, end in left.items() if part in held and held[part].start < end}
        left = {part: end for part, end in left.items() if reached.get(part, 0) < end}
        if found := [each for each in batch if each.offset < ends.get(each.partition, 0)]:
            yield found
