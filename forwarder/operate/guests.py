"""Erasing a guest, found by e-mail address, phone number or reservation; how long workspaces keep guests' data, which housekeeping
removes then; and purging finished submissions, in small batches while the workers run. All of it is audited.

An erased submission stays as an anonymous one (`reservation.record`), recognised by its request id, keys and outcome, and is
never booked again. Messages on topics cannot be changed: they expire with their topic's retention."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, islice
from operator import attrgetter
from typing import Annotated, Any, Final
from unicodedata import normalize
from urllib.parse import unquote

from typer import Argument, Option

from forwarder.operate.command import Deployment, commands, open_deployment, require_known
from forwarder.operate.output import Block, Printed, Table, WrongUsage, picked, progress
from forwarder.operate.scan import texts_in
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock, iso
from forwarder.reservation.submission import live_account_id
from forwarder.store.audit import AuditResult
from forwarder.store.lists.overview import MIN_DIGITS, digits_of
from forwarder.store.retention import ErasureState, GuestRecord, GuestStore, ParkedReason, Purger
from forwarder.tenancy.port import MAX_DAYS, MAX_DELIVERY_DAYS, RetentionPolicy
from forwarder.topics.codec import Undecodable, decode_data
from forwarder.topics.port import Log, Topics, read_to_end


@dataclass(frozen=True, slots=True)
class GuestQuery:
    """Selects a guest by exactly one of `email`, `phone` and `request_id`; in one workspace, if given.

    request_id: The requestId of one reservation: rsv_…."""

    email: Annotated[str | None, Option(help="The guest's e-mail address.")] = None
    phone: Annotated[str | None, Option(help="The guest's phone number, as it was submitted.")] = None
    request_id: Annotated[str | None, Option("--reservation", metavar="REQUEST_ID")] = None
    workspace_id: Annotated[str | None, Option("--workspace", help="Only in this workspace.")] = None

    @property
    def by(self) -> str:
        """The kind of query, without the guest's data."""
        return "reservation" if self.request_id is not None else "email" if self.email is not None else "phone"

    def is_in(self, value: Any) -> bool:
        """Whether any text in `value` (JSON) names the guest."""
        if self.email is not None:
            # This address, and not one that ends or begins with it.
            before, after = r"(?<!\w)(?<!\w[.+%&'-])", r"(?!\w|@|[.-]\w)"
            wanted = f"{before}{re.escape(_comparable(self.email.strip()))}{after}"
            return any(re.search(wanted, _comparable(text)) is not None for text in texts_in(value))
        if self.phone is not None:
            number = digits_of(self.phone)
            runs = (run for text in texts_in(value) for run in re.findall(r"\+?\d[\d\s().\-/]{4,}\d", text))
            return any(number in map(digits_of, (run, *re.split(r"\s/\s|\s-\s|\s\s|\n", run))) for run in runs)
        return False


def _comparable(text: str) -> str:
    """Without regard to case and compatible characters; a URL's `%40` is an `@`."""
    return normalize("NFKC", unquote(text)).casefold()


@dataclass(frozen=True, slots=True)
class TopicRemains:
    """A topic that may still hold messages about the guest. `retention_days`: how long it keeps messages, None without limit.
    `gone_by`: when its present ones will have expired. `letters`: its dead letters about the guest, if they were counted."""

    topic: str
    retention_days: float | None
    gone_by: datetime | None
    letters: int | None = None

    def in_words(self) -> str:
        letters = f" {self.letters} dead letters about this guest are on it." if self.letters else ""
        if self.gone_by is None:
            return f"{self.topic}: without end, as its retention is set.{letters}"
        kept = f"{self.retention_days:g} days for each message, so its present messages are gone by {iso(self.gone_by)}"
        return f"{self.topic}: {kept}.{letters}"


@dataclass(frozen=True, slots=True)
class FoundGuest:
    """`deliveries`: webhook deliveries, by request id. `parked`: the reasons of cancellations whose submissions never came."""

    records: Sequence[GuestRecord]
    deliveries: Mapping[str, int]
    parked: Sequence[ParkedReason]
    remains: Sequence[TopicRemains]


@dataclass(frozen=True, slots=True)
class Guests:
    """Finds and erases guests. `accounts` looks up the workspaces of accounts. Raises the errors of the ports."""

    store: GuestStore
    accounts: Callable[[], Awaitable[Mapping[str, str]]]
    log: Log
    topics: Topics
    clock: Clock
    audit: Audit

    async def find(self, query: GuestQuery, on_more: Callable[[int], None] = lambda _ids: None) -> FoundGuest:
        """All places with the guest's data. A search by e-mail address or phone number reads all submissions, a page at a time, and
        calls `on_more` with how many ids each spans."""
        if query.request_id is not None:
            named = await self.store.submissions([query.request_id])
            records = [record for record in named if query.workspace_id in {None, record.workspace_id}]
        else:
            records, after = [], 0
            last: int | None = 0
            while last is not None:
                on_more(last - after)
                after = last
                page, last = await self.store.page(after=after, limit=500, workspace_id=query.workspace_id)
                records += [record for record in page if query.is_in([record.request, record.record, *record.others])]
        deliveries = {each.request_id: await self.store.deliveries(each.request_id) for each in records}
        parked, of = await self.store.parked_reasons(), query.workspace_id
        accounts = await self.accounts() if parked and of is not None else {}
        parked = [each for each in parked if of in {None, accounts.get(live_account_id(each.account_id))}]
        parked = [each for each in parked if each.request_id == query.request_id or query.is_in(each.reason)]
        return FoundGuest(records, deliveries, parked, await self._remains(query, deliveries))

    async def erase(self, query: GuestQuery, found: FoundGuest) -> tuple[Sequence[str], Sequence[GuestRecord]]:
        """Erases the erasable ones of `found`; returns their request ids, and all submissions of `found` as they are now. Each
        transaction has an audit entry with the request ids and without the guest."""
        erased: list[str] = []
        ready = [each for each in found.records if each.standing is ErasureState.ERASABLE]
        again = [each for each in found.records if each.standing is ErasureState.ERASED]
        ready += [each for each in again if found.deliveries[each.request_id]]
        of_workspace_id = attrgetter("workspace_id")
        for workspace_id, records in groupby(sorted(ready, key=of_workspace_id), key=of_workspace_id):
            while some := [*islice(records, 25)]:
                ids = [record.request_id for record in some]
                async with self.audit.operation("guests.erase", workspace=workspace_id, by=query.by, submissions=ids):
                    erased += await self.store.erase(some, now=self.clock.now())
        if parked := [each.request_id for each in found.parked]:
            by, workspace_id = query.by, query.workspace_id
            async with self.audit.operation("guests.erase", workspace=workspace_id, by=by, submissions=parked):
                erased += await self.store.erase_parked_reasons(parked)
        return erased, await self.store.submissions([each.request_id for each in found.records])

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
                    counted = letters if topic == self.topics.dead_letters else None
                    days = None if retention is None else retention / timedelta(days=1)
                    gone_by = None if retention is None else self.clock.now() + retention
                    remains.append(TopicRemains(topic, days, gone_by, counted))
        return remains


_ADVICE: Final = {
    ErasureState.UNFINISHED: "is not finished: settle it if it is in doubt, cancel it if it is not wanted, or wait for its "
    "outcome; then erase it",
    ErasureState.UNPUBLISHED: "has a result event that is about to be published: erase it in a minute",
    ErasureState.ERASABLE: "was worked on meanwhile: erase it again",
}


async def erase(*, query: GuestQuery, yes: bool = False) -> Printed:
    """Erase a guest: from submissions, records and webhook deliveries. Without --yes, only show where its data is.

    Erased submissions stay as anonymous ones, still recognised and never booked again. Unfinished ones are refused. Messages on
    topics cannot be changed: the command shows when they expire. Safe to repeat.

    yes: Erase. Without it, only show what would be erased."""
    if [query.email, query.phone, query.request_id].count(None) != 2:  # noqa: PLR2004 - one of three is given
        raise WrongUsage("Say which guest by one of --email, --phone and --reservation.")
    if query.email is not None and "@" not in query.email:
        raise WrongUsage("--email takes a full address, such as maria@example.com.")
    if query.phone is not None and len(digits_of(query.phone)) < MIN_DIGITS:
        raise WrongUsage("--phone takes a full number, of at least six digits.")
    async with open_deployment() as backend:
        await require_known(backend, (), workspace=query.workspace_id)
        store, accounts = GuestStore(backend.engine), backend.tenancy.account_workspaces
        guests = Guests(store, accounts, backend.log, backend.settings.topics, backend.clock, backend.audit)
        with progress(await guests.store.last_id(), "Looking for the guest") as on_more:
            found = await guests.find(query, on_more)
        erased, records = await guests.erase(query, found) if yes else ((), found.records)
    about = "requestId workspace=workspace_id account=account_id status standing"
    rows = [picked(each, about) | {"deliveries": found.deliveries[each.request_id]} for each in records]
    parked = [each.request_id for each in found.parked]
    remains = [picked(each, "topic goneBy deadLetters=letters retentionDays") for each in found.remains]
    result = {"dryRun": not yes, "erased": len(erased), "submissions": rows, "parkedCancellations": parked}
    columns = ("requestId", "workspace", "account", "status", "deliveries", "standing")
    text: list[Block] = [Table(rows, columns)] if rows else []
    if parked:
        text.append(f"Found in the reason of a cancellation whose submission never arrived: {', '.join(parked)}.")
    ready = sum(record.standing is ErasureState.ERASABLE for record in found.records) + len(parked)
    if yes:
        done = "They are still recognised, and not booked again."
        text.append(f"{len(erased)} erased. {done}" if erased else "Nothing was erased.")
    else:
        text.append(f"{ready} would be erased; --yes erases." if ready else "There is nothing to erase.")
    if found.remains:
        text.append("\nMessages on topics cannot be changed, and still contain the data:")
    text += [f"  {each.in_words()}" for each in found.remains]
    text.append("\nThe PMS, your webhooks' receivers, backups and proxy logs have their own copies.")
    waiting = [f"{each.request_id} {_ADVICE[each.standing]}" for each in records if each.standing in _ADVICE]
    failed = "; ".join(waiting) + "." if yes and waiting else None
    return Printed({**result, "topics": remains}, text, failed=failed)


COMMANDS = commands(erase=erase)


# --- how long data is kept -------------------------------------------------------------------------------------------------

MIN_DAYS: Final = 30  # more recently finished submissions are kept: callers, webhooks and consumers still query them


@dataclass(frozen=True, slots=True)
class Purge:
    """Deletes submissions that finished before a day, in UTC: confirmed ones finish when the guest leaves, others with their
    outcome. Never deletes pending, in-doubt or being-cancelled ones, however old. Raises `StoreUnavailable`."""

    store: Purger
    audit: Audit
    clock: Clock

    async def count(self, before: date, workspace_id: str | None) -> int:
        """How many would be deleted now. Raises `WrongUsage` for a day whose submissions are still needed."""
        if before > (latest := self.clock.now().date() - timedelta(days=MIN_DAYS)):
            kept = f"submissions are kept for {MIN_DAYS} days. {latest} is the latest."
            raise WrongUsage(f"--before {before} is too recent: {kept}")
        return await self.store.count(before, workspace_id)

    async def run(self, before: date, workspace_id: str | None, on_more: Callable[[int], None]) -> int:
        """Deletes them and returns how many. Calls `on_more` with the size of each batch. Can be interrupted and run again."""
        deleted, after, day = 0, 0, before.isoformat()
        async with self.audit.request("submissions.purge", workspace=workspace_id, finished_before=day) as operation:
            await self.store.mark(before, now=self.clock.now())
            while True:
                last, some = await self.store.delete_some(before, workspace_id, after=after, limit=500)
                if last is None:
                    break
                after, deleted = last, deleted + some
                on_more(some)
            await self.store.forget_repeats()
            operation.details["deleted"] = deleted
            await self.audit.note(operation, AuditResult.DONE)
        return deleted


_FOR_EVER = "forever"


async def set_retention(
    workspace: Annotated[str, Argument(metavar="WORKSPACE", help="The workspace.")],
    reservations: Annotated[str | None, Option(metavar="DAYS")] = None,
    deliveries: Annotated[int | None, Option(min=0, max=MAX_DELIVERY_DAYS, metavar="DAYS")] = None,
    dead_letters: Annotated[str | None, Option(metavar="DAYS")] = None,
) -> Printed:
    """Set the number of days after which a workspace's guests' data is removed. Takes effect within a quarter of an hour.

    reservations: Days after the guest of a confirmed reservation left, or after it was rejected or cancelled; or forever.
    deliveries: Days after a webhook delivery ended, 30 at most.
    dead_letters: Days after a submission failed, for which it can be replayed; or forever."""
    changes: dict[str, Any] = {} if deliveries is None else {"delivery_days": deliveries}
    if reservations is not None:
        changes["reservation_days"] = _days_of("--reservations", reservations)
    if dead_letters is not None:
        changes["dead_letter_days"] = _days_of("--dead-letters", dead_letters)
    if not changes:
        raise WrongUsage("Say what is to change: --reservations, --deliveries or --dead-letters.")
    async with open_deployment() as backend:
        row = _policy_row(await backend.tenancy.set_policy(workspace, **changes))
    kept = {"finished reservations' guests": row["reservations"], "ended deliveries": row["deliveries"]}
    kept["failed submissions"] = row["deadLetters"]
    words = ", ".join(f"{what} {_FOR_EVER if days is None else f'for {days:,} days'}" for what, days in kept.items())
    return Printed(row, f"Workspace {workspace} keeps {words}.")


async def show_retention(
    backend: Deployment,
    workspace: Annotated[str | None, Argument(metavar="WORKSPACE", help="The workspace. By default all.")] = None,
) -> Printed:
    """Show the number of days after which guests' data is removed."""
    rows = [_policy_row(policy) for policy in await backend.tenancy.policies(workspace)]
    shown = [{name: _FOR_EVER if days is None else days for name, days in row.items()} for row in rows]
    return Printed(rows, Table(shown, ("workspace", "reservations", "deliveries", "deadLetters")))


def _days_of(option: str, text: str) -> int | None:
    if text == _FOR_EVER:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_DAYS)) and int(text) <= MAX_DAYS):
        raise WrongUsage(f"{option} takes whole days, 0 to {MAX_DAYS:,}, or {_FOR_EVER}; it is {text!r}.")
    return int(text)


def _policy_row(policy: RetentionPolicy) -> dict[str, Any]:
    days = "reservations=reservation_days deliveries=delivery_days deadLetters=dead_letter_days"
    row = picked(policy, f"workspace=workspace_id {days}")
    return row | ({"deliveries": MAX_DELIVERY_DAYS} if policy.delivery_days is None else {})


async def purge(
    before: Annotated[datetime, Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD")],
    workspace: Annotated[str | None, Option(help="Only of this workspace.")] = None,
    yes: Annotated[bool, Option("--yes", help="Delete. Without it, only count what would be deleted.")] = False,
) -> Printed:
    """Delete submissions that were finished before a day.

    Confirmed submissions finish when the guest leaves, others with their outcome.
    Deleted ones can no longer be looked up, listed, cancelled or replayed; a booking once confirmed is still not made twice.
    Pending, in-doubt and being-cancelled ones are kept, however old. Workers keep running. Safe to interrupt and to repeat.

    before: The first day, in UTC, whose submissions stay."""
    day, deleted = before.date(), 0
    async with open_deployment() as backend:
        submissions = Purge(Purger(backend.engine), backend.audit, backend.clock)
        await require_known(backend, (), workspace=workspace)
        count = await submissions.count(day, workspace)
        if yes and count:
            with progress(count, "Deleting") as on_more:
                deleted = await submissions.run(day, workspace, on_more)
    result = {"dryRun": not yes, "before": day.isoformat(), "workspace": workspace}
    if yes:
        return Printed({**result, "submissions": deleted}, f"{deleted:,} submissions deleted.")
    would = f"{count:,} submissions would be deleted; --yes deletes." if count else "There is nothing to delete."
    return Printed({**result, "submissions": count}, would)


RETENTION = commands(set=set_retention, show=show_retention)
