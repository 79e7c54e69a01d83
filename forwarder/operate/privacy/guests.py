"""Erasing a guest: where a guest's data is, by e-mail address, phone number or reservation; and removing it from there.

An erased submission stays as an anonymous one (`reservation.anonymous`), recognised by its request id, keys and outcome, and is
never booked again. Messages on topics cannot be changed: they expire with their topic's retention.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, Final

import typer

from forwarder.operate.command import Commands, open_deployment
from forwarder.operate.output import Block, Shown, Table, WrongUsage, picked, progress
from forwarder.operate.privacy.scan import texts_in
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock, iso
from forwarder.reservation.submission import live_account_id
from forwarder.store.retention import GuestStore
from forwarder.store.submissions.port import ErasureState, GuestRecord, ParkedReason
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
        return any(self._names(text) for text in texts_in(value))

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


@dataclass(frozen=True, slots=True)
class Found:
    """Where a guest's data is. `deliveries`: webhook deliveries, by request id. `parked`: the reasons of cancellations whose
    submissions were not ingested."""

    records: Sequence[GuestRecord]
    deliveries: Mapping[str, int]
    parked: Sequence[ParkedReason]
    remains: Sequence[TopicRemains]


@dataclass(frozen=True, slots=True)
class Guests:
    """Finds and erases guests. `accounts` looks up the workspaces of accounts. Raises `StoreUnavailable`, `TenancyUnavailable`,
    `LogUnavailable`."""

    store: GuestStore
    accounts: Callable[[], Awaitable[Mapping[str, str]]]
    log: Log
    topics: Topics
    clock: Clock
    audit: Audit

    async def find(self, query: GuestQuery, on_page: OnPage = lambda _id: None) -> Found:
        """All places with the guest's data. A search by e-mail address or phone number reads all submissions, a page at a time."""
        if query.request_id is not None:
            named = await self.store.submissions([query.request_id])
            records = [record for record in named if query.workspace_id in {None, record.workspace_id}]
        else:
            records, after = [], 0
            while True:
                page, last = await self.store.page(after=after, limit=_PAGE, workspace_id=query.workspace_id)
                records += [record for record in page if query.is_in([record.request, record.record])]
                if last is None:
                    break
                on_page(last)
                after = last
        deliveries = {each.request_id: await self.store.deliveries(each.request_id) for each in records}
        parked = await self.store.parked_reasons()
        accounts = await self.accounts() if parked and query.workspace_id is not None else {}
        parked = [
            each
            for each in parked
            if (each.request_id == query.request_id or query.is_in(each.reason))
            and query.workspace_id in {None, accounts.get(live_account_id(each.account_id))}
        ]
        return Found(records, deliveries, parked, await self._remains(query, deliveries))

    async def erase(self, query: GuestQuery, found: Found) -> Sequence[str]:
        """Erases the erasable ones of `found`; returns their request ids. Each transaction has an audit entry with the request
        ids and without the guest."""
        erased: list[str] = []
        ready = [record for record in found.records if record.standing is ErasureState.ERASABLE]
        of_workspace_id = attrgetter("workspace_id")
        for workspace_id, records in groupby(sorted(ready, key=of_workspace_id), key=of_workspace_id):
            of_workspace = list(records)
            for first in range(0, len(of_workspace), _AT_ONCE):
                some = of_workspace[first : first + _AT_ONCE]
                ids = [record.request_id for record in some]
                async with self.audit.operation("guests.erase", workspace=workspace_id, by=query.by, submissions=ids):
                    erased += await self.store.erase(some, now=self.clock.now())
        if parked := [each.request_id for each in found.parked]:
            async with self.audit.operation(
                "guests.erase", workspace=query.workspace_id, by=query.by, submissions=parked
            ):
                erased += await self.store.erase_parked_reasons(parked)
        return erased

    async def _remains(self, query: GuestQuery, request_ids: Collection[str]) -> Sequence[TopicRemains]:
        letters, remains = 0, []  # dead letters about these submissions, or with the guest's data
        async with aclosing(read_to_end(self.log, self.topics.dead_letters)) as batches:
            async for batch in batches:
                for consumed in batch:
                    try:
                        data = decode_data(consumed.message)
                    except Undecodable:
                        letters += query.is_in(consumed.message.value.decode("utf-8", "replace"))
                    else:
                        letters += data.get("requestId") in request_ids or query.is_in(data)
        async with self.log.admin() as admin:
            existing = await admin.list()
            for topic in self.topics.all():
                if topic in existing:
                    retention = await admin.retention(topic)
                    gone_by = None if retention is None else self.clock.now() + retention
                    counted = letters if topic == self.topics.dead_letters else None
                    remains.append(TopicRemains(topic, retention, gone_by, counted))
        return remains


def digits_of(phone: str) -> str:
    """A phone number's digits for comparison, without the zeros of an international prefix."""
    return "".join(character for character in phone if character.isdecimal()).lstrip("0")


_COLUMNS = ("requestId", "workspace", "account", "status", "deliveries", "standing")
_ADVICE: Final = {
    ErasureState.UNFINISHED: "is not finished: settle it if it is in doubt, cancel it if it is not wanted, or wait for its "
    "outcome; then erase it",
    ErasureState.UNPUBLISHED: "has a result event that is about to be published: erase it in a minute",
}


async def erase(
    email: Annotated[str | None, typer.Option(help="The guest's e-mail address.")] = None,
    phone: Annotated[str | None, typer.Option(help="The guest's phone number, as it was submitted.")] = None,
    reservation: Annotated[
        str | None, typer.Option(metavar="REQUEST_ID", help="The requestId of one reservation: rsv_….")
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="Only in this workspace.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase. Without it, only show what would be erased.")] = False,
) -> Shown:
    """Erase a guest: from submissions, records and webhook deliveries. Without --yes, only show where its data is.

    Erased submissions stay as anonymous ones, still recognised and never booked again. Unfinished ones are refused. Messages on
    topics cannot be changed: the command shows when they expire. Safe to repeat.
    """
    if [email, phone, reservation].count(None) != 2:  # noqa: PLR2004 - one of three is given
        raise WrongUsage("Say which guest by one of --email, --phone and --reservation.")
    if email is not None and "@" not in email:
        raise WrongUsage("--email takes a full address, such as maria@example.com.")
    if phone is not None and len(digits_of(phone)) < _MIN_DIGITS:
        raise WrongUsage("--phone takes a full number, of at least six digits.")
    query = GuestQuery(email, phone, reservation, workspace)
    async with open_deployment() as backend:
        store, workspaces, topics = (
            GuestStore(backend.engine),
            backend.tenancy.account_workspaces,
            backend.settings.topics,
        )
        guests = Guests(store, workspaces, backend.log, topics, backend.clock, backend.audit)
        seen = 0
        with progress(await store.last_id(), "Looking for the guest") as on_more:

            def on_page(last: int) -> None:
                nonlocal seen
                on_more(last - seen)
                seen = last

            found = await guests.find(query, on_page)
        erased = frozenset(await guests.erase(query, found)) if yes else frozenset()
    rows = []
    for record in found.records:
        standing = ErasureState.ERASED if record.request_id in erased else record.standing
        about = picked(record, "requestId workspace=workspace_id account=account_id status")
        rows.append({**about, "deliveries": found.deliveries[record.request_id], "standing": standing.value})
    parked = [each.request_id for each in found.parked]
    remains = [
        picked(each, "topic goneBy deadLetters=letters") | {"retentionDays": _days(each)} for each in found.remains
    ]
    result = {"dryRun": not yes, "erased": len(erased), "submissions": rows, "parkedCancellations": parked}
    text: list[Block] = [Table(rows, _COLUMNS)] if rows else []
    if parked:
        text.append(f"Found in the reason of a cancellation whose submission never arrived: {', '.join(parked)}.")
    ready = sum(record.standing is ErasureState.ERASABLE for record in found.records) + len(parked)
    if not yes:
        text.append(f"{ready} would be erased; --yes erases." if ready else "There is nothing to erase.")
    elif erased:
        text.append(f"{len(erased)} erased. They are still recognised, and not booked again.")
    else:
        text.append("Nothing was erased.")
    if found.remains:
        text.append("\nMessages on topics cannot be changed, and still contain the data:")
    text += [f"  {_remains(each)}" for each in found.remains]
    text.append("\nThe PMS, your webhooks' receivers, backups and proxy logs have their own copies.")
    waiting = [f"{each.request_id} {_ADVICE[each.standing]}" for each in found.records if each.standing in _ADVICE]
    failed = "; ".join(waiting) + "." if yes and waiting else None
    return Shown({**result, "topics": remains}, text, failed=failed)


def _remains(remains: TopicRemains) -> str:
    letters = "" if not remains.letters else f" {remains.letters} dead letters about this guest are on it."
    if remains.retention is None or remains.gone_by is None:
        return f"{remains.topic}: without end, as its retention is set.{letters}"
    gone_by = f"so its present messages are gone by {iso(remains.gone_by)}."
    return f"{remains.topic}: {_days(remains):g} days for each message, {gone_by}{letters}"


def _days(remains: TopicRemains) -> float | None:
    return None if remains.retention is None else remains.retention / timedelta(days=1)


COMMANDS: Commands = {"erase": erase}
