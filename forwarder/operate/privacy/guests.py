"""Erasing a guest: where a guest's data is, by e-mail address, phone number or reservation; and removing it from there.

An erased submission stays as an anonymous one (`reservation.anonymous`), recognised by its request id, keys and outcome, and is
never booked again. Messages on topics cannot be changed: they expire with their topic's retention.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Annotated, Any, Final

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Commands, with_backend
from forwarder.operate.output import AsJson, Failed, WrongUsage, picked, progress, say, show_json, show_rows
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock, iso
from forwarder.reservation.submission import live_account_id
from forwarder.store.retention import GuestStore
from forwarder.store.submissions.port import ErasureState, GuestRecord, ParkedReason
from forwarder.tenancy.sql.admin import RetentionPolicies
from forwarder.topics.codec import Undecodable, decode_data
from forwarder.topics.port import Log, Topics
from forwarder.topics.reading import read_to_end

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
    """A topic that may still hold messages about the guest. `retention`: how long it keeps messages, None without limit. `gone_by`:
    when its present ones will have expired. `letters`: how many dead letters about the guest it has, if they were counted."""

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


_COLUMNS = ("requestId", "workspace", "account", "status", "deliveries", "standing")
_ADVICE: Final = {
    ErasureState.UNFINISHED: "is not finished: settle it if it is in doubt, cancel it if it is not wanted, or wait for its "
    "outcome; then erase it",
    ErasureState.UNPUBLISHED: "has a result event that is about to be published: erase it in a minute",
}


def commands() -> Commands:
    """erase"""
    return {"erase": erase}


def erase(
    email: Annotated[str | None, typer.Option(help="The guest's e-mail address.")] = None,
    phone: Annotated[str | None, typer.Option(help="The guest's phone number, as it was submitted.")] = None,
    reservation: Annotated[
        str | None, typer.Option(metavar="REQUEST_ID", help="The requestId of one reservation: rsv_….")
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="Only in this workspace.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Without it, only show what would be erased.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a guest: from submissions, records and webhook deliveries. Without --yes, only show where its data is.

    Erased submissions stay as anonymous ones, still recognised and never booked again. Unfinished ones are refused. Messages on
    topics cannot be changed: the command shows when they expire. Safe to repeat.
    """
    if [email, phone, reservation].count(None) != 2:  # noqa: PLR2004 - one of three is given
        raise WrongUsage("Say which guest by one of --email, --phone and --reservation.")
    if email is not None and "@" not in email:
        raise WrongUsage("--email takes a full address, such as maria@example.com.")
    if phone is not None and not is_phone(phone):
        raise WrongUsage("--phone takes a full number, of at least six digits.")
    query = GuestQuery(email, phone, reservation, workspace)
    found, erased = with_backend(partial(_erase, query, yes))
    waiting = [record for record in found.records if record.standing in _ADVICE]
    if as_json:
        show_json(_as_json(found, erased, dry_run=not yes))
    else:
        _tell(found, erased, dry_run=not yes)
    if yes and waiting:
        raise Failed("; ".join(f"{record.request_id} {_ADVICE[record.standing]}" for record in waiting) + ".")


async def _erase(query: GuestQuery, yes: bool, backend: Backend) -> tuple[Found, frozenset[str]]:
    guests = guests_of(backend)
    seen = 0
    with progress(await guests.last_id(), "Looking for the guest") as on_more:

        def on_page(last: int) -> None:
            nonlocal seen
            on_more(last - seen)
            seen = last

        found = await guests.find(query, on_page)
    return found, frozenset(await guests.erase(query, found)) if yes else frozenset()


def _tell(found: Found, erased: frozenset[str], *, dry_run: bool) -> None:
    if found.records:
        show_rows([_row(record, found, erased) for record in found.records], _COLUMNS, as_json=False)
    if found.parked:
        named = ", ".join(parked.request_id for parked in found.parked)
        say(f"Found in the reason of a cancellation whose submission never arrived: {named}.")
    ready = sum(record.standing is ErasureState.ERASABLE for record in found.records) + len(found.parked)
    if dry_run:
        say(f"{ready} would be erased; --yes erases." if ready else "There is nothing to erase.")
    else:
        say(
            f"{len(erased)} erased. They are still recognised, and not booked again."
            if erased
            else "Nothing was erased."
        )
    if found.remains:
        say("\nMessages on topics cannot be changed, and still contain the data:")
    for remains in found.remains:
        say(f"  {_remains(remains)}")
    say("\nThe PMS, your webhooks' receivers, backups and proxy logs have their own copies.")


def _remains(remains: TopicRemains) -> str:
    letters = "" if not remains.letters else f" {remains.letters} dead letters about this guest are on it."
    if remains.retention is None or remains.gone_by is None:
        return f"{remains.topic}: without end, as its retention is set.{letters}"
    gone_by = f"so its present messages are gone by {iso(remains.gone_by)}."
    return f"{remains.topic}: {_days(remains):g} days for each message, {gone_by}{letters}"


def _row(record: GuestRecord, found: Found, erased: frozenset[str]) -> dict[str, Any]:
    standing = ErasureState.ERASED if record.request_id in erased else record.standing
    about = picked(record, "requestId workspace=workspace_id account=account_id status")
    return {**about, "deliveries": found.deliveries.get(record.request_id, 0), "standing": standing.value}


def _as_json(found: Found, erased: frozenset[str], *, dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "erased": len(erased),
        "submissions": [_row(record, found, erased) for record in found.records],
        "parkedCancellations": [parked.request_id for parked in found.parked],
        "topics": [
            picked(each, "topic goneBy deadLetters=letters") | {"retentionDays": _days(each)} for each in found.remains
        ],
    }


def _days(remains: TopicRemains) -> float | None:
    return None if remains.retention is None else remains.retention / timedelta(days=1)


def guests_of(backend: Backend) -> Guests:
    """Finds and erases guests."""
    accounts = RetentionPolicies(backend.engine).account_workspaces
    return Guests(
        GuestStore(backend.engine), accounts, backend.log, backend.settings.topics, backend.clock, backend.audit
    )
