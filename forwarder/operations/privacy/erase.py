"""Erasing a guest: where a guest's data is, by e-mail address, phone number or reservation; and removing it from there.

An erased submission stays as an anonymous one (`reservation.anonymous`), recognised by its request id, keys and outcome, and is
never booked again. Messages on topics cannot be changed: they expire with their topic's retention.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from forwarder.operations.audit import Audit
from forwarder.process.clock import Clock
from forwarder.reservation.submission import live_account_id
from forwarder.store.submissions.port import ErasureState, GuestRecord, ParkedReason
from forwarder.topics.codec import Undecodable, decode_data
from forwarder.topics.port import Log, Topics
from forwarder.topics.reading import read_to_end

if TYPE_CHECKING:
    from forwarder.store.retention import GuestStore

_PAGE: Final = 500
_AT_ONCE: Final = 25
_MIN_DIGITS: Final = 6
_EMAIL: Final = re.compile(r"[^\s<>\"'(),;:]+@[^\s<>\"'(),;:]+")
_PHONE: Final = re.compile(r"\+?\d[\d\s().\-/]{4,}\d")

OnPage = Callable[[int], None]
"""Called with the id up to which submissions were read."""


@dataclass(frozen=True, slots=True)
class GuestQuery:
    """Selects a guest by exactly one of `email`, `phone` and `request_id`; in one workspace, if given."""

    email: str | None = None
    phone: str | None = None
    request_id: str | None = None
    workspace_id: str | None = None

    @property
    def by(self) -> str:
        """The kind of query, without the guest's data."""
        return "reservation" if self.request_id is not None else "email" if self.email is not None else "phone"

    def is_in(self, value: Any) -> bool:
        """Whether any text in `value` (JSON) names the guest."""
        return any(self._names(text) for text in _texts(value))

    def _names(self, text: str) -> bool:
        if self.email is not None:
            wanted = self.email.strip().casefold()
            return any(each.strip(".").casefold() == wanted for each in _EMAIL.findall(text))
        if self.phone is not None:
            wanted = digits_of(self.phone)
            return any(digits_of(each) == wanted for each in _PHONE.findall(text))
        return False


@dataclass(frozen=True, slots=True)
class TopicRemains:
    """What a topic may still hold. `retention`: how long it keeps messages, None for ever. `gone_by`: when its present messages
    will have expired. `letters`: how many dead letters about the guest it has, if they were counted."""

    topic: str
    retention: timedelta | None
    gone_by: datetime | None
    letters: int | None = None


@dataclass(slots=True)
class Found:
    """Where a guest's data is. `deliveries`: webhook deliveries, by request id. `parked`: the reasons of cancellations whose
    submissions were not ingested."""

    records: Sequence[GuestRecord] = ()
    deliveries: dict[str, int] = field(default_factory=dict)
    parked: Sequence[ParkedReason] = ()
    remains: Sequence[TopicRemains] = ()


class Guests:
    """Finds and erases guests. `accounts` looks up the workspaces of accounts. Raises `StoreUnavailable`, `TenancyUnavailable`,
    `LogUnavailable`."""

    def __init__(
        self,
        store: "GuestStore",
        accounts: Callable[[], Awaitable[Mapping[str, str]]],
        log: Log,
        topics: Topics,
        clock: Clock,
        audit: Audit,
    ) -> None:
        self._accounts = accounts
        self._store = store
        self._log = log
        self._topics = topics
        self._clock = clock
        self._audit = audit

    async def last_id(self) -> int:
        """Up to which id `find` looks."""
        return await self._store.last_id()

    async def find(self, query: GuestQuery, on_page: OnPage = lambda _id: None) -> Found:
        """All places with the guest's data. A search by e-mail address or phone number reads all submissions, a page at a time."""
        found = Found(records=await self._records(query, on_page))
        for record in found.records:
            found.deliveries[record.request_id] = await self._store.deliveries(record.request_id)
        found.parked = await self._parked(query)
        found.remains = await self._remains(query, {record.request_id for record in found.records})
        return found

    async def erase(self, query: GuestQuery, found: Found) -> Sequence[str]:
        """Erases the erasable ones of `found`; returns their request ids. Each transaction has an audit entry with the request
        ids and without the guest."""
        erased: list[str] = []
        ready = [record for record in found.records if record.standing is ErasureState.ERASABLE]
        for workspace_id, records in groupby(sorted(ready, key=_workspace), key=_workspace):
            of_workspace = list(records)
            for first in range(0, len(of_workspace), _AT_ONCE):
                some = of_workspace[first : first + _AT_ONCE]
                ids = [record.request_id for record in some]
                async with self._audit.operation("guests.erase", workspace=workspace_id, by=query.by, submissions=ids):
                    erased += await self._store.erase(some, now=self._clock.now())
        return [*erased, *await self._erase_parked(query, [parked.request_id for parked in found.parked])]

    async def _erase_parked(self, query: GuestQuery, ids: Sequence[str]) -> Sequence[str]:
        if not ids:
            return ()
        async with self._audit.operation(
            "guests.erase", workspace=query.workspace_id, by=query.by, submissions=list(ids)
        ):
            return await self._store.erase_parked_reasons(ids)

    async def _parked(self, query: GuestQuery) -> Sequence[ParkedReason]:
        parked = await self._store.parked_reasons()
        accounts = await self._accounts() if parked and query.workspace_id is not None else {}
        return [
            each
            for each in parked
            if (each.request_id == query.request_id or query.is_in(each.reason))
            and query.workspace_id in {None, accounts.get(live_account_id(each.account_id))}
        ]

    async def _records(self, query: GuestQuery, on_page: OnPage) -> Sequence[GuestRecord]:
        if query.request_id is not None:
            named = await self._store.submissions([query.request_id])
            return [record for record in named if query.workspace_id in {None, record.workspace_id}]
        return [record async for record in self._all(query, on_page) if query.is_in([record.request, record.record])]

    async def _all(self, query: GuestQuery, on_page: OnPage) -> AsyncIterator[GuestRecord]:
        after = 0
        while True:
            records, last = await self._store.page(after=after, limit=_PAGE, workspace_id=query.workspace_id)
            for record in records:
                yield record
            if last is None:
                return
            on_page(last)
            after = last

    async def _remains(self, query: GuestQuery, request_ids: set[str]) -> Sequence[TopicRemains]:
        letters, remains = await self._letters(query, request_ids), []
        async with self._log.admin() as admin:
            existing = await admin.list()
            for topic in self._topics.all():
                if topic in existing:
                    retention = await admin.retention(topic)
                    gone_by = None if retention is None else self._clock.now() + retention
                    counted = letters if topic == self._topics.dead_letters else None
                    remains.append(TopicRemains(topic, retention, gone_by, counted))
        return remains

    async def _letters(self, query: GuestQuery, request_ids: set[str]) -> int:
        """Dead letters about these submissions, or with the guest's data."""
        count = 0
        async with aclosing(read_to_end(self._log, self._topics.dead_letters)) as batches:
            async for batch in batches:
                for consumed in batch:
                    try:
                        data = decode_data(consumed.message)
                    except Undecodable:
                        count += query.is_in(consumed.message.value.decode("utf-8", "replace"))
                    else:
                        count += data.get("requestId") in request_ids or query.is_in(data)
        return count


def digits_of(phone: str) -> str:
    """A phone number's digits for comparison, without the zeros of an international prefix."""
    return "".join(character for character in phone if character.isdecimal()).lstrip("0")


def is_phone(text: str) -> bool:
    """Whether it has enough digits to search for."""
    return len(digits_of(text)) >= _MIN_DIGITS


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _workspace(record: GuestRecord) -> str:
    return record.workspace_id
