"""What the topics hold, read from their beginning: which submissions the log took, and which events it was given."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b

from forwarder.assembly.backend import open_log
from forwarder.settings import Settings
from forwarder.topics.codec import header
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Tail

_AT_ONCE = 2_000
_END_SECONDS = 0.3
_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Event:
    """A message of the results topic. Its id is `requestId.revision`; `value` is a digest of what it holds."""

    id: str
    type: str
    request_id: str
    value: bytes

    @property
    def revision(self) -> int:
        return int(self.id.rpartition(".")[2])


class Ledger:
    """Reads on whenever it is asked; both topics' every partition is in its order."""

    def __init__(self, requests: Tail, results: Tail) -> None:
        self._requests = requests
        self._results = results
        self.submitted: dict[str, set[str]] = defaultdict(set)
        """The request ids on the requests topic, by account."""
        self.events: dict[str, list[Event]] = defaultdict(list)
        """What was announced of each request id, in the order of the topic, repetitions included."""

    async def read_on(self) -> None:
        """Read to what is now the end, once the brokers answer."""
        await _to_the_end(self._requests, self._take_submission)
        await _to_the_end(self._results, self._take_event)

    def _take_submission(self, delivery: ConsumedMessage) -> None:
        account = delivery.message.key.decode().partition(":")[0]
        self.submitted[account].add(header(delivery.message.headers, "ce_subject") or "")

    def _take_event(self, delivery: ConsumedMessage) -> None:
        headers = delivery.message.headers
        event_id, kind, about = (header(headers, name) or "" for name in ("ce_id", "ce_type", "ce_subject"))
        self.events[about].append(
            Event(event_id, kind, about, blake2b(delivery.message.value, digest_size=16).digest())
        )


async def _to_the_end(tail: Tail, take: Callable[[ConsumedMessage], None]) -> None:
    while True:
        try:
            deliveries = await tail.receive(max_messages=_AT_ONCE, wait_seconds=_END_SECONDS)
        except LogUnavailable:
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        for delivery in deliveries:
            take(delivery)
        if not deliveries:
            return


@asynccontextmanager
async def open_ledger(settings: Settings) -> AsyncIterator[Ledger]:
    """A ledger of the topics that these settings name."""
    async with (
        open_log(settings.backend, partitions=settings.environment.partitions) as log,
        log.tail(settings.topics.requests, from_beginning=True) as requests,
        log.tail(settings.topics.results, from_beginning=True) as results,
    ):
        yield Ledger(requests, results)
