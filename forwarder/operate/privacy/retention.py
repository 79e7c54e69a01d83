"""Retention. Guests' data: shows and sets each workspace's periods, audited; the workers' sweeper applies them. Finished
submissions: counts them, then deletes them in small batches while the workers run, audited."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Final

import typer

from forwarder.operate.command import Commands, open_deployment
from forwarder.operate.output import Shown, Table, WrongUsage, progress
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock
from forwarder.store.audit import AuditResult
from forwarder.store.retention import Purger
from forwarder.tenancy.port import MAX_DAYS, MAX_DELIVERY_DAYS, RetentionPolicy

MIN_DAYS: Final = 30
"""Submissions that finished less than this many days ago are kept: callers, webhooks and consumers still query them."""
_AT_ONCE: Final = 500


class TooRecent(ValueError):
    """Submissions of that day are still needed. The message gives the latest day that is allowed."""


class Purge:
    """Deletes submissions that finished before a day, in UTC: confirmed ones finish when the guest leaves, others with their
    outcome. Never deletes pending, in-doubt or being-cancelled ones, however old. Raises `StoreUnavailable`."""

    def __init__(self, store: Purger, audit: Audit, clock: Clock) -> None:
        self._store = store
        self._audit = audit
        self._clock = clock

    async def count(self, before: date, workspace_id: str | None) -> int:
        """How many would be deleted now. Raises `TooRecent`."""
        latest = self._clock.now().date() - timedelta(days=MIN_DAYS)
        if before > latest:
            raise TooRecent(
                f"{before} is too recent: submissions are kept for {MIN_DAYS} days. {latest} is the latest."
            )
        return await self._store.count(before, workspace_id)

    async def run(self, before: date, workspace_id: str | None, on_more: Callable[[int], None]) -> int:
        """Deletes them and returns how many. Calls `on_more` with the size of each batch. Can be interrupted and run again."""
        deleted, after = 0, 0
        async with self._audit.request(
            "submissions.purge", workspace=workspace_id, finished_before=before.isoformat()
        ) as operation:
            await self._store.mark(before, now=self._clock.now())
            while True:
                purged = await self._store.delete_some(before, workspace_id, after=after, limit=_AT_ONCE)
                if purged.last is None:
                    break
                after, deleted = purged.last, deleted + purged.deleted
                on_more(purged.deleted)
            operation.details["deleted"] = deleted
            await self._audit.note(operation, AuditResult.DONE)
        return deleted


_FOR_EVER = "forever"
_COLUMNS = ("workspace", "reservations", "deliveries", "deadLetters")
_Workspace = Annotated[str, typer.Argument(metavar="WORKSPACE", help="The workspace.")]


async def change(
    workspace: _Workspace,
    reservations: Annotated[
        str | None,
        typer.Option(
            metavar="DAYS",
            help="Days after the guest of a confirmed reservation left, or after it was rejected or cancelled; or forever.",
        ),
    ] = None,
    deliveries: Annotated[
        int | None,
        typer.Option(
            min=0, max=MAX_DELIVERY_DAYS, metavar="DAYS", help="Days after a webhook delivery ended, 30 at most."
        ),
    ] = None,
    dead_letters: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help="Days after a submission failed, for which it can be replayed; or forever."),
    ] = None,
) -> Shown:
    """Set the number of days after which a workspace's guests' data is removed. Takes effect within a quarter of an hour."""
    given = {"reservation_days": ("--reservations", reservations), "dead_letter_days": ("--dead-letters", dead_letters)}
    changes: dict[str, Any] = {name: _days(option, text) for name, (option, text) in given.items() if text is not None}
    changes |= {} if deliveries is None else {"delivery_days": deliveries}
    if not changes:
        raise WrongUsage("Say what is to change: --reservations, --deliveries or --dead-letters.")
    async with open_deployment() as backend:
        row = _row(await backend.tenancy.set_policy(workspace, **changes))
    kept = {
        "finished reservations' guests": row["reservations"],
        "ended deliveries": row["deliveries"],
        "failed submissions": row["deadLetters"],
    }
    words = ", ".join(f"{what} {_FOR_EVER if days is None else f'for {days:,} days'}" for what, days in kept.items())
    return Shown(row, f"Workspace {workspace} keeps {words}.")


async def show(
    workspace: Annotated[str | None, typer.Argument(metavar="WORKSPACE", help="The workspace. By default all.")] = None,
) -> Shown:
    """Show the number of days after which guests' data is removed."""
    async with open_deployment() as backend:
        rows = [_row(policy) for policy in await backend.tenancy.policies(workspace)]
    shown = [{name: _FOR_EVER if days is None else days for name, days in row.items()} for row in rows]
    return Shown(rows, Table(shown, _COLUMNS))


def _days(option: str, text: str) -> int | None:
    if text == _FOR_EVER:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_DAYS)) and int(text) <= MAX_DAYS):
        raise WrongUsage(f"{option} takes whole days, 0 to {MAX_DAYS:,}, or {_FOR_EVER}; it is {text!r}.")
    return int(text)


def _row(policy: RetentionPolicy) -> dict[str, Any]:
    return {
        "workspace": policy.workspace_id,
        "reservations": policy.reservation_days,
        "deliveries": MAX_DELIVERY_DAYS if policy.delivery_days is None else policy.delivery_days,
        "deadLetters": policy.dead_letter_days,
    }


async def purge(
    before: Annotated[
        datetime,
        typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="The first day, in UTC, whose submissions stay."),
    ],
    workspace: Annotated[str | None, typer.Option(help="Only of this workspace.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it, only count what would be deleted.")] = False,
) -> Shown:
    """Delete submissions that were finished before a day.

    Confirmed submissions finish when the guest leaves, others with their outcome.
    Deleted ones can no longer be looked up, listed, cancelled or replayed; a booking once confirmed is still not made twice.
    Pending, in-doubt and being-cancelled ones are kept, however old. Workers keep running. Safe to interrupt and to repeat.
    """
    day = before.date()
    deleted = 0
    async with open_deployment() as backend:
        submissions = Purge(Purger(backend.engine), backend.audit, backend.clock)
        if workspace is not None:
            await backend.tenancy.policies(workspace)  # raises for an unknown workspace
        try:
            count = await submissions.count(day, workspace)
        except TooRecent as error:
            raise WrongUsage(f"--before {error}") from None
        if yes and count:
            with progress(count, "Deleting") as on_more:
                deleted = await submissions.run(day, workspace, on_more)
    result = {"dryRun": not yes, "before": day.isoformat(), "workspace": workspace}
    sentence = f"{deleted:,} submissions deleted."
    if not yes:
        sentence = f"{count:,} submissions would be deleted; --yes deletes." if count else "There is nothing to delete."
    return Shown({**result, "submissions": deleted if yes else count}, sentence)


COMMANDS: Commands = {"set": change, "show": show}
