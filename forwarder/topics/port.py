"""What the stages ask of the log, and nothing of how it is kept.

Exception
├── LogUnavailable       the only one a caller has to expect; each backend makes it of its driver's errors, in one place
│   └── GroupBusy        embedded only: another process is the group's one consumer
└── ValueError
    └── MessageTooLarge  a bug of the caller, which bounds what it writes
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from forwarder.reservation.value import value

Headers = tuple[tuple[str, bytes], ...]

MAX_MESSAGE_BYTES = 1_000_000
"""Of one message, with its key and headers: what Kafka's brokers take unless they are told otherwise."""


_HEADER_OVERHEAD = 10
"""Two lengths, of five bytes at the most."""


class LogUnavailable(Exception):
    """The log could not be reached or did not acknowledge in time. What was being published may or may not be stored."""


class GroupBusy(LogUnavailable):
    """The embedded log has one consumer for each group and topic, and another one has its place."""


class MessageTooLarge(ValueError):
    """The message can never be stored. Nothing was published."""


@value(frozen=True, slots=True)
class Message:
    """One message as the stages write it. Messages of one key keep their order; `value` is UTF-8 JSON."""

    key: bytes
    value: bytes
    headers: Headers = ()

    @property
    def size(self) -> int:
        """In bytes, of the key, the value, and the headers, no less than they take on the wire."""
        size = len(self.key) + len(self.value)
        for name, content in self.headers:
            size += len(name.encode()) + len(content) + _HEADER_OVERHEAD
        return size


def refuse_too_large(messages: Sequence[Message]) -> None:
    """Raise `MessageTooLarge` where one of `messages` is."""
    for message in messages:
        if message.size > MAX_MESSAGE_BYTES:
            raise MessageTooLarge(f"a message of {message.size:,} bytes is over the {MAX_MESSAGE_BYTES:,} of the log")


UNREADABLE = "unreadable"
"""The header of a message that its backend cannot read, and so delivers empty: its value names what was raised."""


@value(frozen=True, slots=True)
class ConsumedMessage:
    """A message where it stands in the log. `timestamp_ms` is when the log took it, in UTC milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    message: Message


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a group is behind one partition's end: `messages` not yet committed."""

    partition: int
    messages: int


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics, which a prefix (for example `staging.`) may set apart."""

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

        Concurrent calls share batches. Messages of one call and one key are stored in order, each once, whatever the driver
        had to retry. Raises `LogUnavailable` when that was not confirmed within the publisher's time limit.
        """
        ...

    async def ready(self) -> bool:
        """True when a publish would be expected to succeed now. Never raises, answers within a second."""
        ...


PartitionsChanged = Callable[[frozenset[int]], Awaitable[None]]
"""Awaited with the partitions this member now owns, before it receives anything from them; empty while it owns none."""


class Consumer(Protocol):
    """One member of a consumer group on one topic. Delivers at least once, in order within a partition."""

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """The next messages not yet received by this member, at most `max_messages`; empty when none came within `wait_seconds`.

        Starts after the group's last commit, or at the beginning where the group has none.
        """
        ...

    async def commit(self, deliveries: Sequence[ConsumedMessage]) -> None:
        """Make durable that the group is past each of `deliveries`. A partition lost meanwhile is passed over in silence:
        its new owner delivers those messages again."""
        ...

    async def lag(self) -> Sequence[Lag]:
        """How far the group is behind, for each partition this member owns."""
        ...


class Tail(Protocol):
    """Reads every partition of one topic outside any group; commits nothing."""

    async def seek_to_end(self) -> None:
        """Whatever is published after this returns will be received; what was before is skipped."""
        ...

    async def seek_to_time(self, moment: datetime) -> Mapping[int, int]:
        """Go on, in each partition, from the first message that the log took at `moment` or later; where there is none, from what
        is published after this returns. The offset at which each partition goes on."""
        ...

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        """As `Consumer.receive`."""
        ...


class TopicAdmin(Protocol):
    """Makes and lists topics, and tells what they hold."""

    async def create(self, partitions: Mapping[str, int]) -> Sequence[str]:
        """Create each named topic that does not exist yet with so many partitions; the names of those created."""
        ...

    async def list(self) -> Mapping[str, int]:
        """The topics that exist, and their number of partitions."""
        ...

    async def offsets(self, topic: str) -> Mapping[int, range]:
        """For each partition of `topic`, the offsets that it holds now: from that of the oldest message which is still kept to,
        as `stop`, that of the message which comes next. None at all where there is no such topic."""
        ...


class Log(Protocol):
    """One backend. Each part is opened by `async with` and closed with it: what was published is flushed, members leave."""

    def publisher(self) -> AbstractAsyncContextManager[Publisher]: ...

    def consumer(
        self, topic: str, *, group: str, on_partitions: PartitionsChanged
    ) -> AbstractAsyncContextManager[Consumer]: ...

    def tail(self, topic: str, *, from_beginning: bool = False) -> AbstractAsyncContextManager[Tail]: ...

    def admin(self) -> AbstractAsyncContextManager[TopicAdmin]: ...
