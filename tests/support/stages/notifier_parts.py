"""A notifier's parts in memory, on a clock that is moved by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

from forwarder.notifier.posting import NotifierParts, NotifierSettings
from forwarder.notifier.service import Notifier
from forwarder.notifier.webhooks import Webhooks
from forwarder.store.deliveries import DeliveryStatus, NewDelivery
from forwarder.topics.port import ConsumedMessage, Log, Topics
from tests.support.memory.audit import memory_audit
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.webhooks import MemoryDeliveries, MemoryEndpoints, MemorySender, public_targets
from tests.support.sealing import keyring_of

SECRET = "the secret of these tests"


@dataclass
class Batches:
    """Implements what the intake needs of `Consumer`."""

    waiting: list[Sequence[ConsumedMessage]] = field(default_factory=list)
    committed: list[Sequence[ConsumedMessage]] = field(default_factory=list)

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        return self.waiting.pop(0) if self.waiting else ()

    @property
    def unreadable(self) -> Mapping[int, int]:
        return {}

    async def commit(self, deliveries: Sequence[ConsumedMessage]) -> None:
        self.committed.append(deliveries)


class Hooks:
    """A notifier's parts on a clock that is moved by hand. `sweep` does what its loop does."""

    def __init__(self, settings: NotifierSettings | None = None) -> None:
        self.settings = settings or NotifierSettings()
        self.clock = ManualClock()
        self.endpoints, self.queue, self.sender = MemoryEndpoints("ws-1", "ws-2"), MemoryDeliveries(), MemorySender()
        self.consumer = Batches()
        self.restart()
        sealer = keyring_of(SECRET)
        self.webhooks = Webhooks(
            self.endpoints, self.queue, sealer, public_targets(), self.clock, memory_audit(self.clock)
        )

    def restart(self) -> None:
        """Another process, which knows nothing of what the one before saw."""
        parts = NotifierParts(
            cast("Log", None),
            Topics(),
            self.queue,
            self.endpoints,
            keyring_of(SECRET),
            self.sender,
            self.clock,
            self.settings,
        )
        self.intake = Notifier(parts, jitter=lambda: 0.5)
        self.dispatcher = self.intake.dispatcher
        self.backoff = self.dispatcher.backoff

    async def add(self, name: str, workspace: str = "ws-1", types: Sequence[str] | None = None) -> str:
        """An endpoint; its id."""
        endpoint, _ = await self.webhooks.add(workspace, url(name), types=types)
        return endpoint.id

    async def queued(self, endpoint_id: str, *numbers: int) -> None:
        new = [NewDelivery(endpoint_id, f"event-{number}", "t", "{}") for number in numbers]
        await self.queue.queue(new, now=self.clock.now())

    async def sweep(self) -> None:
        self.dispatcher.start(await self.queue.endpoints_due(now=self.clock.now()))
        await settle()

    async def after(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.sweep()

    async def work(self, days: float) -> None:
        """Sweep for so long: whenever something is due, and each minute where it has to wait."""
        end = self.clock.monotonic() + timedelta(days=days).total_seconds()
        await self.sweep()
        while (left := end - self.clock.monotonic()) > 0:
            due = self.queue.first_due_at()
            pause = left if due is None else (due - self.clock.now()).total_seconds()
            await self.after(min(left, pause if pause > 0 else 60.0))

    def statuses(self, endpoint_id: str) -> list[DeliveryStatus]:
        return [entry.status for entry in self.queue.of(endpoint_id)]


def url(name: str) -> str:
    return f"https://{name}.example/hook"
