"""The log as the stages see it, whatever backend keeps it.

Exception
├── LogUnavailable       the only one a caller must expect; each backend translates its driver's errors into it, in one place
│   ├── GroupBusy        embedded only: another process is the group's one consumer
│   └── LogUnreadable    Kafka only: this process cannot read what the brokers have, such as a batch in a codec that it lacks
└── ValueError
    └── MessageTooLarge  the topic takes no message of that size
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from forwarder.reservation.parsing import unix_moment
from forwarder.reservation.value import value

Headers = tuple[tuple[str, bytes], ...]

MAX_MESSAGE_BYTES = 1_000_000
"""Of one message with its key and headers: what Kafka brokers accept by default."""

_HEADER_OVERHEAD = 10
"""Two lengths of up to five bytes."""


class LogUnavailable(Exception):
    """The log could not be reached, or did not acknowledge in time. A message being published may or may not be stored."""


class GroupBusy(LogUnavailable):
    """The embedded log allows one consumer for each group and topic, and there already is one."""


class LogUnreadable(LogUnavailable):
    """A message is there, and this process cannot read it: the message says where, why, and what to do. Nothing is skipped."""


class MessageTooLarge(ValueError):
    """The topic does not take some of the messages, however often they are sent. All others of the call are published.

    `sizes`: of each that was refused, by its place in the call, in bytes. `limit`: how many the topic takes in a message with all
    that is around it, where the log says so.
    """

    def __init__(self, sizes: Mapping[int, int], limit: int | None) -> None:
        takes = "less" if limit is None else f"at most {limit:,}"
        super().__init__(f"a message has {max(sizes.values()):,} bytes, and its topic takes {takes}")
        self.sizes = sizes
        self.limit = limit


@value(frozen=True, slots=True)
class Message:
    """A message as the stages write it. Messages of one key keep their order; `value` is UTF-8 JSON. `partition`: where it goes
    whatever its key is; None, or more than the topic has, leaves that to the key. A message that was received has none."""

    key: bytes
    value: bytes
    headers: Headers = ()
    partition: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the key, the value and the headers: at least as many as on the wire."""
        size = len(self.key) + len(self.value)
        for name, content in self.headers:
            size += len(name.encode()) + len(content) + _HEADER_OVERHEAD
        return size


def refuse_too_large(messages: Sequence[Message]) -> None:
    """Raise `MessageTooLarge` if no backend takes one of `messages`."""
    refused = too_large(messages)
    if refused is not None:
        raise refused


def too_large(messages: Sequence[Message]) -> MessageTooLarge | None:
    """Which of `messages` no backend takes; None where it takes all of them."""
    sizes = {index: message.size for index, message in enumerate(messages) if message.size > MAX_MESSAGE_BYTES}
    return MessageTooLarge(sizes, MAX_MESSAGE_BYTES) if sizes else None


UNREADABLE = "unreadable"
"""The header of an empty message that stands in for one that no process can read. Its value is the class of the error."""


def moment_of(milliseconds: int) -> datetime:
    """In UTC. The log may let its writers set the time, and then it can be anything: what is no moment is 1970."""
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
    """How far a group is behind the end of one partition: `messages` not yet committed, the oldest of which was appended at
    `oldest_at`. That is None where there are none, and where the log does not say it in time."""

    partition: int
    messages: int
    oldest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is kept: on `replicas` brokers, of which `in_sync` have all of it; of each the least of any partition."""

    partitions: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics, with an optional prefix (for example `staging.`)."""

    prefix: str = ""
    requests: str = field(init=False)
    results: str = field(init=False)
    dead_letters: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", f"{self.prefix}reservations.requests")
        object.__setattr__(self, "results", f"{self.prefix}reservations.results")
        object.__setattr__(self, "dead_letters", f"{self.prefix}reservations.requests-dlt")

    def all(self) -> tuple[str, ...]:
        return (self.requests, self.results, self.dead_letters)


class Publisher(Protocol):
    """Appends to the log."""

    async def publish(self, topic: str, messages: Sequence[Message]) -> None:
        """Return once every in-sync replica has all of `messages` (embedded: once they are synced to disk).

        Concurrent calls share batches. Messages of one call and one key are stored in order and once each, even if the driver
        had to retry. Raises `LogUnavailable` if this was not acknowledged within the publisher's time limit; else
        `MessageTooLarge` if the topic refused some of them for their size: all others are stored.
        """
        ...

    def partition(self, topic: str, key: str) -> int | None:
        """The partition of `topic` that messages with `key` go to now; None while that is not known."""
        ...

    async def ready(self) -> bool:
        """Whether a publish is expected to succeed now. Never raises; returns within a second."""
        ...


PartitionsChanged = Callable[[frozenset[int]], Awaitable[None]]
"""Awaited with the partitions that this member now owns, before it receives anything from them; empty if it owns none."""


@value(frozen=True, slots=True)
class LogGap:
    """A place where a group was to go on, and which the log does not have any more: messages of `topic` were deleted that the group
    had not received, or the topic was made anew. The group goes on at `resumed_at`.

    `missing`: how many offsets the log lost before the group received them; None where the log ends before `position`, so that
    nobody can say how many messages there were.
    """

    topic: str
    partition: int
    position: int
    resumed_at: int

    @property
    def missing(self) -> int | None:
        return self.resumed_at - self.position if self.resumed_at > self.position else None


GapFound = Callable[[LogGap], Awaitable[None]]
"""Awaited before the group goes on behind a gap. Where it raises, `receive` raises that, and the gap is found again."""


class Consumer(Protocol):
    """One member of a consumer group on one topic. Delivers at least once, in order within a partition."""

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """The next messages not yet received by this member, up to `max_messages`. Empty if none came within `wait_seconds`, and
        never earlier: not after a rebalance or a gap either.

        Starts after the group's last commit, or at the beginning if it has none. Where the log lacks messages that the group has
        not received, that is a `LogGap`: it is passed to `on_gap`, and committed, before anything behind it is received.
        """
        ...

    @property
    def unreadable(self) -> Mapping[int, int]:
        """Of each partition that this process cannot read at present, the offset at which it waits. The other partitions go on, and
        so does this one as soon as it can be read."""
        ...

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        """Have the offset after each of `messages` committed, durably: within a second, as long as `receive` is called, and before
        this member leaves. A partition lost meanwhile is skipped without an error: its new owner receives those messages again.
        Raises `LogUnavailable` where this commit, or the one before it, could not be made; what was not committed comes again."""
        ...


class Tail(Protocol):
    """Reads every partition of one topic outside any group; commits nothing."""

    async def seek_to_end(self) -> None:
        """Skip what is there. Everything published after this returns will be received."""
        ...

    async def seek(self, offsets: Mapping[int, int]) -> None:
        """Continue, in these partitions, at these offsets, which the topic holds."""
        ...

    async def seek_to_time(self, moment: datetime) -> Mapping[int, int]:
        """Continue, in each partition, at the first message appended at `moment` or later; if there is none, at what is published
        after this returns. The offset at which each partition continues."""
        ...

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """See `Consumer.receive`. Raises `LogUnreadable`, again and again, while one of the partitions cannot be read here."""
        ...

    async def positions(self) -> Mapping[int, int]:
        """For each partition, the offset after what was received, and after what follows it and is no message (Kafka's transaction
        markers)."""
        ...


class TopicAdmin(Protocol):
    """Creates and lists topics, and reads their offsets."""

    async def create(self, partitions: Mapping[str, int], *, retention: timedelta | None = None) -> Sequence[str]:
        """Create each topic that does not exist yet, with the given number of partitions. The names of those created. `retention`:
        for how long they keep a message at least; as the log has it by default where that is None."""
        ...

    async def list(self) -> Mapping[str, int]:
        """The existing topics and their number of partitions."""
        ...

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        """Those of `topics` that exist."""
        ...

    async def members(self, group: str) -> int | None:
        """How many members the group has now; None where the log does not tell."""
        ...

    async def offsets(self, topic: str) -> Mapping[int, range]:
        """For each partition of `topic`, the offsets it holds now: from the oldest message that is kept up to, as `stop`, the
        next message. Empty if there is no such topic."""
        ...

    async def offsets_at(self, topic: str, moments: Sequence[datetime]) -> Sequence[Mapping[int, int]]:
        """For each of `moments` and each partition of `topic`, the offset of the first message appended then or later; where there
        is none, that of the next message. Empty mappings if there is no such topic. Much quicker than to seek with a tail, whose
        answer comes after what that is waiting for."""
        ...

    async def settings(self, topic: str) -> Mapping[str, str]:
        """How `topic`, which exists, is set up, by Kafka's names; empty where a topic has no settings."""
        ...

    async def retention(self, topic: str) -> timedelta | None:
        """For how long `topic`, which exists, keeps a message at least; None for ever."""
        ...

    async def committed(self, topic: str, *, group: str) -> Mapping[int, int]:
        """For each partition of `topic` that the group has committed in, the offset from which it would go on."""
        ...

    async def lag(self, topic: str, *, group: str) -> Sequence[Lag]:
        """The group's lag in each partition of `topic`, whether the group has members or not. Empty if there is no such topic."""
        ...


class Log(Protocol):
    """One backend. Each part is opened and closed by `async with`: on exit a publisher flushes and a member leaves its group."""

    def publisher(self) -> AbstractAsyncContextManager[Publisher]: ...

    def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged, on_gap: GapFound | None = None
    ) -> AbstractAsyncContextManager[Consumer]: ...

    def tail(self, topic: str, *, from_beginning: bool = False) -> AbstractAsyncContextManager[Tail]: ...

    def admin(self) -> AbstractAsyncContextManager[TopicAdmin]: ...
