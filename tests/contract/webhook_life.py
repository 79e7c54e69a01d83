"""Webhook deliveries through outages that are longer than anything is tried or kept: real runners on the real queue, and every step
held against what really was posted."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.notifier.posting import PAUSES, RETRY_FOR, NotifierParts, NotifierSettings, Poster
from forwarder.notifier.service import EndpointDispatcher
from forwarder.notifier.webhooks import Webhooks
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus, NewDelivery
from forwarder.store.delivery_queue import ENTRY, Deliveries, entry_of
from forwarder.store.deployment import BacklogReader
from forwarder.store.retention import GuestStore
from forwarder.store.tables import webhook_deliveries
from forwarder.tenancy.port import MAX_DELIVERY_DAYS
from forwarder.topics.port import Log, Topics
from forwarder.webhooks.port import EndpointResponse, PostResult
from tests.support.memory.audit import memory_audit
from tests.support.memory.clock import ManualClock
from tests.support.memory.webhooks import MemoryEndpoints, public_targets
from tests.support.sealing import keyring_of

T = TypeVar("T")

SECRET: Final = "the secret of this machine"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SETTINGS: Final = NotifierSettings()
_WORKING, _DOWN, _GONE = EndpointResponse(204), EndpointResponse(503), EndpointResponse(410)
_ROUNDING: Final = timedelta(seconds=1)
"""What is written down of a moment has milliseconds, and a sweep comes once a second."""

REPLIES: Final[Mapping[str, Callable[[int], PostResult]]] = {
    "works": lambda _: _WORKING,
    "is down": lambda _: _DOWN,
    "asks for an hour": lambda _: EndpointResponse(503, 3600.0),
    "does not take every third": lambda event: _WORKING if event % 3 else _DOWN,
    "is gone": lambda _: _GONE,
}
ENDPOINTS: Final = ("a", "b")


class Meanwhile(NamedTuple):
    """What goes on after a step: so many events come for each endpoint, then one of the notifiers works, or none does."""

    events: int
    process: int | None
    span: timedelta


names = st.sampled_from(ENDPOINTS)
replies = st.sampled_from(list(REPLIES))
meanwhiles = st.builds(
    Meanwhile,
    st.integers(0, 2),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([timedelta(0), timedelta(minutes=1), HOUR, DAY, RETRY_FOR + HOUR]),
)


@dataclass(frozen=True, slots=True)
class Posted:
    """A post that was made. `worked`: for how long notifiers had been at work by then."""

    endpoint: str
    event_id: str
    status: int
    at: datetime
    worked: timedelta


class Endpoints:
    """Implements `Sender`: answers as it is set to, and keeps what was really posted."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.replies: dict[str, str] = {}
        self.posts: list[Posted] = []
        self.worked = self.jump = timedelta(0)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        name, event_id = url.removeprefix("https://").partition(".")[0], headers["webhook-id"]
        reply = REPLIES[self.replies[name]](int(event_id))
        assert isinstance(reply, EndpointResponse)
        self.posts.append(Posted(name, event_id, reply.status, self._clock.now(), self.worked))
        self._clock.jump(self.jump.total_seconds())
        self.jump = timedelta(0)
        return reply


class Process:
    """One notifier, and what it remembers."""

    def __init__(self, machine: "WebhookLife") -> None:
        parts = NotifierParts(
            cast("Log", None),
            Topics(),
            machine.queue,
            machine.registry,
            keyring_of(SECRET),
            machine.endpoints,
            machine.clock,
            SETTINGS,
        )
        self.dispatcher = EndpointDispatcher(parts, Poster(parts, jitter=lambda: machine.jitter))
        self.backoff = self.dispatcher.backoff


class WebhookLife(RuleBasedStateMachine):
    """Two endpoints and two notifiers, of which one works at a time. After each rule the log is held against the posts."""

    def __init__(self, engine: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._engine, self._loop = engine, loop
        self.clock = ManualClock()
        self.queue, self.log = Deliveries(engine), Deliveries(engine)
        self._standing = BacklogReader(engine)
        self.registry = MemoryEndpoints("ws-1")
        self.endpoints = Endpoints(self.clock)
        self.jitter = 0.5
        self._webhooks = Webhooks(
            self.registry,
            self.log,
            keyring_of(SECRET),
            public_targets(),
            self.clock,
            memory_audit(self.clock),
        )
        self._ids: dict[str, str] = {}
        self._events = 0
        self._begun: dict[tuple[str, str], int] = {}
        self._before: dict[int, DeliveryEntry] = {}
        self._enabled: dict[str, bool] = dict.fromkeys(ENDPOINTS, True)
        self._processes = [Process(self), Process(self)]

    @initialize(jitter=st.sampled_from([0.25, 0.5, 0.99]))
    def begin(self, jitter: float) -> None:
        self.jitter = jitter
        self._run(self._clear())

    async def _clear(self) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(delete(webhook_deliveries))
        for name in ENDPOINTS:
            endpoint, _ = await self._webhooks.add("ws-1", f"https://{name}.example/")
            self._ids[name], self.endpoints.replies[name] = endpoint.id, "works"

    # --- what happens ---------------------------------------------------------------------------------------------------

    @rule(name=names, reply=replies, meanwhile=meanwhiles)
    def endpoint_changes(self, name: str, reply: str, meanwhile: Meanwhile) -> None:
        self.endpoints.replies[name] = reply
        self._go_on(meanwhile)

    @rule(span=st.sampled_from([2 * HOUR, 2 * DAY, 5 * DAY, 40 * DAY]), restarted=st.booleans(), meanwhile=meanwhiles)
    def nobody_can_work(self, span: timedelta, restarted: bool, meanwhile: Meanwhile) -> None:
        """The notifiers are down, or what they need."""
        self._run(self.clock.advance(span.total_seconds()))
        if restarted:
            self._processes = [Process(self), Process(self)]
        self._go_on(meanwhile)

    @rule(name=names, meanwhile=meanwhiles)
    def notifier_dies_with_claims(self, name: str, meanwhile: Meanwhile) -> None:
        now = self.clock.now()
        until = now + timedelta(seconds=2 * SETTINGS.post_seconds)
        self._run(self.queue.claim(self._ids[name], now=now, until=until, limit=2))
        self._go_on(meanwhile)

    @rule(span=st.sampled_from([DAY, 5 * DAY, 40 * DAY]), under_way=st.booleans(), meanwhile=meanwhiles)
    def clock_jumps(self, span: timedelta, under_way: bool, meanwhile: Meanwhile) -> None:
        """Now, or while the next post is under way."""
        if under_way:
            self.endpoints.jump = span
        else:
            self.clock.jump(span.total_seconds())
        self._go_on(meanwhile)

    @rule(name=names, off=meanwhiles, meanwhile=meanwhiles)
    def owner_disables_for_a_while(self, name: str, off: Meanwhile, meanwhile: Meanwhile) -> None:
        """An event comes that was read before the endpoint was disabled."""
        self._run(self._webhooks.disable(self._ids[name], workspace_id=None))
        self._queue(name, 1)
        self._go_on(off)
        self._enable(name)
        self._go_on(meanwhile)

    @rule(name=names, choose=st.integers(0, 5), meanwhile=meanwhiles)
    def owner_resends(self, name: str, choose: int, meanwhile: Meanwhile) -> None:
        entries = [entry for entry in self._before.values() if entry.endpoint_id == self._ids[name]]
        if entries:
            self._enable(name)
            entry = entries[choose % len(entries)]
            self._run(self._webhooks.resend(self._ids[name], entry.id, workspace_id=None))
            self._begin_anew(name, [entry])
            self._go_on(meanwhile)

    @rule(name=names, since=st.sampled_from([DAY, 60 * DAY]), meanwhile=meanwhiles)
    def owner_recovers(self, name: str, since: timedelta, meanwhile: Meanwhile) -> None:
        moment = self.clock.now() - since
        lost = {DeliveryStatus.FAILED, DeliveryStatus.STOPPED}
        entries = [entry for entry in self._before.values() if entry.endpoint_id == self._ids[name]]
        self._enable(name)
        self._run(self._webhooks.recover(self._ids[name], workspace_id=None, since=moment))
        self._begin_anew(name, [one for one in entries if one.status in lost and one.created_at >= moment])
        self._go_on(meanwhile)

    def teardown(self) -> None:
        """In the end everything that is pending arrives."""
        if not self._ids:
            return
        for name in ENDPOINTS:
            self.endpoints.replies[name] = "works"
            self._enable(name)
        self._run(self._work(Process(self), RETRY_FOR + DAY))
        assert self._run(self._standing.endpoints()) == []

    # --- how it is carried out ------------------------------------------------------------------------------------------

    def _queue(self, name: str, count: int) -> None:
        new = [NewDelivery(self._ids[name], str(self._events + one), "t", "{}") for one in range(count)]
        self._events += count
        self._run(self.queue.queue(new, now=self.clock.now()))

    def _enable(self, name: str) -> None:
        self._run(self._webhooks.enable(self._ids[name], workspace_id=None))
        self._enabled[name] = True

    def _go_on(self, meanwhile: Meanwhile) -> None:
        """Then what is old is forgotten, and what became of everything is judged."""
        for name in ENDPOINTS:
            self._queue(name, meanwhile.events)
        if meanwhile.process is not None:
            self._run(self._work(self._processes[meanwhile.process], meanwhile.span))
        entries = self._run(self._entries())
        self._judge(entries)
        forgets, guests = self.clock.now() - timedelta(days=MAX_DELIVERY_DAYS), GuestStore(self._engine)
        deleted = 0
        for each in self._ids.values():
            deleted += self._run(guests.delete_deliveries(each, ended_before=forgets, after=0, limit=5))[1]
        if deleted:
            self._before, entries = entries, self._run(self._entries())
            self._judge_forgotten(entries, forgets)
        self._before = entries

    async def _work(self, process: Process, span: timedelta) -> None:
        left = span
        while True:
            for endpoint_id in sorted(await self.queue.endpoints_due(now=self.clock.now())):
                if not process.backoff.is_waiting(endpoint_id):
                    await process.dispatcher.run(endpoint_id)
            if left <= timedelta(0):
                return
            due = min((each.first_due_at for each in await self._standing.endpoints()), default=None)
            pause = left if due is None else due - self.clock.now()
            step = min(left, max(pause, timedelta(minutes=1)))
            await self.clock.advance(step.total_seconds())
            self.endpoints.worked += step
            left -= step

    def _begin_anew(self, name: str, entries: Sequence[DeliveryEntry]) -> None:
        for entry in entries:
            self._begun[name, entry.event_id] = len(self.endpoints.posts)

    def _run(self, action: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(action)

    async def _entries(self) -> dict[int, DeliveryEntry]:
        async with self._engine.connect() as connection:
            rows = await connection.execute(select(*ENTRY).order_by(webhook_deliveries.c.id))
            return {row.id: entry_of(row) for row in rows}

    # --- what must hold -------------------------------------------------------------------------------------------------

    def _judge_forgotten(self, entries: Mapping[int, DeliveryEntry], forgets: datetime) -> None:
        for entry in self._before.values():
            if entry.id not in entries:
                assert entry.ended_at is not None, f"forgotten while it was pending: {entry}"
                assert entry.ended_at < forgets, f"forgotten too soon: {entry}"

    def _judge(self, entries: Mapping[int, DeliveryEntry]) -> None:
        assert entries.keys() >= self._before.keys()
        for name, endpoint_id in self._ids.items():
            endpoint = self.registry.kept[endpoint_id]
            mine = [entry for entry in entries.values() if entry.endpoint_id == endpoint_id]
            given_up = [
                entry
                for entry in mine
                if entry.status is DeliveryStatus.FAILED and self._is_new(entry) and not self._ended_gone(name, entry)
            ]
            for entry in given_up:
                counted = self._counted(self._posts_of(name, entry))
                assert counted >= RETRY_FOR - _ROUNDING * entry.tries, f"given up after {counted}: {entry}"
            for entry in mine:
                if entry.status is DeliveryStatus.STOPPED and self._is_new(entry):
                    assert not endpoint.enabled, f"stopped, and its endpoint is enabled: {entry}"
            if self._enabled[name] and not endpoint.enabled:
                self._judge_disabled(name, endpoint.disabled_reason, given_up, mine)
            self._enabled[name] = endpoint.enabled

    def _judge_disabled(
        self, name: str, reason: str | None, given_up: Sequence[DeliveryEntry], mine: Sequence[DeliveryEntry]
    ) -> None:
        if reason == "gone":
            assert any(post.endpoint == name and post.status == 410 for post in self.endpoints.posts)
            return
        if reason != "failing":
            return  # by its owner
        assert given_up, f"{name} was disabled, and nothing was given up"
        began = max(self._posts_of(name, entry)[0].at for entry in given_up)
        taken = [
            one for one in mine if one.status is DeliveryStatus.DELIVERED and one.ended_at and one.ended_at >= began
        ]
        assert not taken, f"{name} was disabled, and took {taken}"

    def _is_new(self, entry: DeliveryEntry) -> bool:
        before = self._before.get(entry.id)
        return before is None or before.status is not entry.status

    def _ended_gone(self, name: str, entry: DeliveryEntry) -> bool:
        posts = self._posts_of(name, entry)
        return bool(posts) and posts[-1].status == 410

    def _posts_of(self, name: str, entry: DeliveryEntry) -> list[Posted]:
        """Those of its last series of tries."""
        later = self.endpoints.posts[self._begun.get((name, entry.event_id), 0) :]
        return [post for post in later if (post.endpoint, post.event_id) == (name, entry.event_id)]

    def _counted(self, posts: Sequence[Posted]) -> timedelta:
        """For how long it was really tried: of the time between two posts as much as the schedule might have planned, or as
        notifiers were at work."""
        counted = timedelta(0)
        for tried, (earlier, later) in enumerate(pairwise(posts), start=1):
            planned = 2 * PAUSES[min(tried, len(PAUSES)) - 1]
            counted += min(later.at - earlier.at, max(planned, later.worked - earlier.worked))
        return counted
