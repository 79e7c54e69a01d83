"""Webhooks in memory at their seams: endpoints, deliveries, and a way to endpoints that answers as it is told to."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from ipaddress import ip_address

from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus, DueDelivery, NewDelivery, TriedDelivery
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.engine import StoreIdentity
from forwarder.store.submissions.port import StoreUnavailable, Unstorable
from forwarder.tenancy.port import (
    MAX_ENDPOINTS,
    MAX_PREVIOUS_SECRETS,
    Disabled,
    Endpoint,
    NotKnown,
    PreviousSecret,
    TooManyEndpoints,
    UnknownAccount,
)
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.webhooks.addresses import AddressRule, ResolvedTargets
from forwarder.webhooks.port import EndpointResponse, PostResult


class MemoryEndpoints(Endpoints):
    """`Endpoints` for the workspaces that it is given."""

    def __init__(self, *workspaces: str) -> None:
        self.workspaces = set(workspaces)
        self.accounts = {"acc-1", "alpha-1", "alpha-2"}
        self.kept: dict[str, Endpoint] = {}

    async def add(self, endpoint: Endpoint) -> None:
        if endpoint.workspace_id not in self.workspaces:
            raise NotKnown(f"There is no workspace {endpoint.workspace_id!r}.")
        if len(await self.of(endpoint.workspace_id)) >= MAX_ENDPOINTS:
            raise TooManyEndpoints(f"A workspace has at most {MAX_ENDPOINTS} endpoints.")
        self._require_accounts(endpoint)
        self.kept[endpoint.id] = endpoint

    def _require_accounts(self, endpoint: Endpoint) -> None:
        for account_id in endpoint.account_ids or ():
            if account_id not in self.accounts:
                raise UnknownAccount(f"names {account_id!r}, which is not an integration account of the workspace")

    async def of(self, workspace_id: str | None) -> Sequence[Endpoint]:
        return [one for one in self.kept.values() if workspace_id in {None, one.workspace_id}]

    async def any_enabled(self) -> bool:
        return any(one.enabled for one in self.kept.values())

    async def enabled_of(self, workspace_ids: Collection[str]) -> Sequence[Endpoint]:
        return [one for one in self.kept.values() if one.workspace_id in workspace_ids and one.enabled]

    async def endpoint(self, endpoint_id: str) -> Endpoint | None:
        return self.kept.get(endpoint_id)

    async def disable(self, endpoint_id: str, reason: Disabled, *, now: datetime, url: str | None = None) -> bool:
        known = self.kept.get(endpoint_id)
        if known is None or not known.enabled or url not in {None, known.url}:
            return False
        self.kept[endpoint_id] = replace(known, enabled=False, disabled_reason=reason.value, disabled_at=now)
        return True

    async def enable(self, endpoint_id: str) -> Endpoint | None:
        return self._change(endpoint_id, lambda was: replace(was, enabled=True, disabled_reason=None, disabled_at=None))

    async def change(self, was: Endpoint, endpoint: Endpoint) -> Endpoint | None:
        self._require_accounts(endpoint)
        present = self.kept.get(endpoint.id)
        if present is None or present.terms != was.terms:
            return None
        return self._change(endpoint.id, lambda present: replace(present, **endpoint.terms))

    async def rotate(self, endpoint_id: str, secret: str, *, previous_until: datetime | None) -> Endpoint | None:
        def rotated(was: Endpoint) -> Endpoint:
            if previous_until is None:
                return replace(was, secret=secret, previous=())
            kept = [PreviousSecret(was.secret, previous_until), *was.previous[: MAX_PREVIOUS_SECRETS - 1]]
            return replace(was, secret=secret, previous=tuple(sorted(kept, key=lambda each: each.until, reverse=True)))

        return self._change(endpoint_id, rotated)

    async def remove(self, endpoint_id: str) -> bool:
        return self.kept.pop(endpoint_id, None) is not None

    def _change(self, endpoint_id: str, change: Callable[[Endpoint], Endpoint]) -> Endpoint | None:
        if endpoint_id in self.kept:
            self.kept[endpoint_id] = change(self.kept[endpoint_id])
        return self.kept.get(endpoint_id)


@dataclass
class _Kept:
    """One delivery."""

    entry: DeliveryEntry
    body: str
    retrying_since: datetime
    claims: int = 0
    trace: str | None = None


@dataclass
class MemoryDeliveries(Deliveries):
    """`Deliveries` in memory. `away`: it cannot be reached; `refused`: the event that it cannot hold."""

    kept: dict[int, _Kept] = field(default_factory=dict)
    away: bool = False
    refused: str = ""
    identity: StoreIdentity = field(default_factory=StoreIdentity)  # it is never replaced by another

    def of(self, endpoint_id: str) -> list[DeliveryEntry]:
        """The oldest first."""
        return [one.entry for one in self.kept.values() if one.entry.endpoint_id == endpoint_id]

    async def queue(self, deliveries: Sequence[NewDelivery], *, now: datetime) -> Sequence[int]:
        self._require()
        if self.refused in {delivery.event_id for delivery in deliveries}:
            raise Unstorable("DataError")
        return [
            self._add(delivery, now)
            for delivery in deliveries
            if delivery.event_id not in {entry.event_id for entry in self.of(delivery.endpoint_id)}
        ]

    def _add(self, delivery: NewDelivery, now: datetime) -> int:
        number = len(self.kept) + 1
        entry = DeliveryEntry(
            number,
            delivery.endpoint_id,
            delivery.event_id,
            delivery.type,
            DeliveryStatus.PENDING,
            now,
            now,
            None,
            0,
            (),
        )
        self.kept[number] = _Kept(entry, delivery.body, now, trace=delivery.trace)
        return number

    async def endpoints_due(self, *, now: datetime) -> Sequence[str]:
        self._require()
        due = (one.entry for one in self.kept.values() if one.entry.due_at and one.entry.due_at <= now)
        return sorted({entry.endpoint_id for entry in due})

    async def claim(self, endpoint_id: str, *, now: datetime, until: datetime, limit: int) -> Sequence[DueDelivery]:
        self._require()
        due = [one for one in self.of(endpoint_id) if one.due_at and one.due_at <= now]
        picked = sorted(due, key=lambda one: one.due_at or now)[:limit]
        for entry in picked:
            self.change(entry.id, due_at=until)
            self.kept[entry.id].claims += 1
        return [self._due(entry) for entry in picked]

    def _due(self, entry: DeliveryEntry) -> DueDelivery:
        kept = self.kept[entry.id]
        return DueDelivery(
            entry.id, entry.endpoint_id, entry.event_id, entry.type, kept.body, kept.claims, kept.retrying_since, entry.tries,
            entry.attempts, kept.trace,
        )  # fmt: skip

    async def record(self, tried: Sequence[TriedDelivery]) -> None:
        self._require()
        for one in tried:
            kept = self.kept[one.delivery.id]
            pending = kept.entry.status is DeliveryStatus.PENDING
            if kept.claims != one.delivery.claim or not (pending or one.status is DeliveryStatus.DELIVERED):
                continue
            ended = None if one.status is DeliveryStatus.PENDING else one.now
            attempts = (*one.delivery.attempts, one.attempt)
            tries = one.delivery.tries + 1
            kept.retrying_since = one.delivery.retrying_since
            self.change(
                kept.entry.id, status=one.status, due_at=one.due_at, ended_at=ended, tries=tries, attempts=attempts
            )

    async def release(self, claimed: Sequence[DueDelivery], *, now: datetime) -> None:
        for one in claimed:
            if self.kept[one.id].claims == one.claim:
                self.change(one.id, due_at=now)

    async def stop(self, endpoint_id: str, *, now: datetime) -> int:
        self._require()
        pending = [one for one in self.of(endpoint_id) if one.due_at is not None]
        for entry in pending:
            self.change(entry.id, status=DeliveryStatus.STOPPED, due_at=None, ended_at=now)
        return len(pending)

    async def delivered_since(self, endpoint_id: str, moment: datetime) -> bool:
        return any(
            entry.status is DeliveryStatus.DELIVERED and entry.ended_at is not None and entry.ended_at >= moment
            for entry in self.of(endpoint_id)
        )

    def first_due_at(self) -> datetime | None:
        """Of what is still to be delivered."""
        return min((one.entry.due_at for one in self.kept.values() if one.entry.due_at is not None), default=None)

    async def entries(
        self,
        endpoint_id: str,
        *,
        status: DeliveryStatus | None,
        before: int | None,
        limit: int,
        after: int | None = None,
        tried: bool = False,
    ) -> Sequence[DeliveryEntry]:
        self._require()
        wanted = [one for one in reversed(self.of(endpoint_id)) if status in {None, one.status}]
        wanted = [one for one in wanted if one.attempts or not tried]
        if after is not None:
            return [one for one in wanted if one.id > after][-limit:]
        return [one for one in wanted if before is None or one.id < before][:limit]

    async def entry(self, endpoint_id: str, delivery_id: int) -> DeliveryEntry | None:
        self._require()
        return next((one for one in self.of(endpoint_id) if one.id == delivery_id), None)

    async def put_back(self, endpoint_id: str, delivery_ids: Collection[int], *, now: datetime) -> int:
        return self._begin_anew([one for one in self.of(endpoint_id) if one.id in delivery_ids], now)

    async def put_back_ended(self, endpoint_id: str, *, since: datetime, now: datetime) -> int:
        ended = {DeliveryStatus.FAILED, DeliveryStatus.STOPPED}
        wanted = [one for one in self.of(endpoint_id) if one.status in ended and one.created_at >= since]
        return self._begin_anew(wanted, now)

    def _begin_anew(self, entries: Sequence[DeliveryEntry], now: datetime) -> int:
        self._require()
        for entry in entries:
            self.change(entry.id, status=DeliveryStatus.PENDING, due_at=now, ended_at=None, tries=0)
            self.kept[entry.id].claims += 1
            self.kept[entry.id].retrying_since = now
        return len(entries)

    def change(self, number: int, **changes: object) -> None:
        self.kept[number].entry = replace(self.kept[number].entry, **changes)  # type: ignore[arg-type]

    def _require(self) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")


@dataclass(frozen=True)
class Post:
    """What was posted."""

    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class MemorySender:
    """Implements `Sender`: keeps what it is given, and answers 204, or what `answers` says for an address, in turn; the last stays.

    An address in `hanging` answers once its event is set.
    """

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.answers: dict[str, list[PostResult]] = {}
        self.hanging: dict[str, asyncio.Event] = {}
        self.under_way: defaultdict[str, int] = defaultdict(int)
        self._changed = asyncio.Condition()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        self.posts.append(Post(url, headers, body))
        self.under_way[url] += 1
        async with self._changed:
            self._changed.notify_all()
        try:
            if url in self.hanging:
                await self.hanging[url].wait()
        finally:
            self.under_way[url] -= 1
        answers = self.answers.get(url, [EndpointResponse(204)])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def to(self, url: str) -> list[str]:
        """The ids of what was posted there."""
        return [post.id for post in self.posts if post.url == url]

    async def posted(self, count: int) -> None:
        """Return once so many posts were begun."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.posts) >= count)


async def _anywhere(host: str, _port: int) -> Sequence[str]:
    """Every name leads to a public address, but those that end in `.internal`. An address leads to itself."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        return ["10.0.0.1" if host.endswith(".internal") else "93.184.215.14"]


def public_targets() -> ResolvedTargets:
    """Production's rule, with names that nobody is asked for."""
    return ResolvedTargets(AddressRule(), _anywhere)
