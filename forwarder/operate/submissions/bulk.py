"""Repairs of many submissions at once: plans first, so that the operator sees what would be done and refused, then repairs each on
its own. A second run continues where the first stopped. Retrying at once is such a repair; so are settling and cancelling."""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar, assert_never

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.command import grouped, stop_on_signal, with_backend
from forwarder.operate.output import AsJson, Failed, WrongUsage, note, progress, report, say, show_json, show_rows
from forwarder.operate.submissions.search import Filters, SubmissionQuery, SubmissionSearch
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock, iso
from forwarder.process.supervision import Stop
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.port import LogUnavailable

if TYPE_CHECKING:
    from forwarder.store.submissions.repairs import Repairs

_AT_ONCE: Final = 200
_NAMED: Final = 50
"""How many request ids an audit entry names."""
_PAGE: Final = 1000
_LISTED: Final = 10

T = TypeVar("T")
OnDone = Callable[[int], None]
"""Called with the number of further submissions processed."""


class CannotRepair(Exception):
    """This submission cannot be repaired this way; the others can. The message says why."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[T]):
    """The plan of a repair. `settled`: nothing left to do for these; `refused`: reasons by request id."""

    chosen: Sequence[T]
    settled: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def refusing(self, unknown: Sequence[str]) -> "Plan[T]":
        """This plan, with a refusal for each request id that no worker has ingested."""
        return replace(self, refused={**self.refused, **dict.fromkeys(unknown, "unknown submission")})


@dataclass(slots=True)
class Outcome:
    """The result of a plan. `done`: changed by this run; `already`: had nothing left to change; `failed`: reasons by request id;
    `left`: not tried, because of `outage` or an interruption."""

    done: int = 0
    already: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    outage: str | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing failed and nothing is left."""
        return not self.failed and not self.left


async def run_each(
    chosen: Sequence[T],
    name: Callable[[T], str],
    repair: Callable[[T], Awaitable[bool]],
    *,
    stop: Stop,
    on_done: OnDone = lambda _count: None,
) -> Outcome:
    """Repairs each of `chosen` until `stop`, or an outage. `name` gives the request id; `repair` returns whether it changed
    anything, and raises `CannotRepair`."""
    outcome = Outcome()
    for number, each in enumerate(chosen):
        if stop.is_set():
            outcome.left = len(chosen) - number
            break
        try:
            if await repair(each):
                outcome.done += 1
            else:
                outcome.already += 1
        except CannotRepair as error:
            outcome.failed[name(each)] = str(error)
        except (StoreUnavailable, TenancyUnavailable, LogUnavailable) as error:
            outcome.left, outcome.outage = len(chosen) - number, str(error)
            break
        on_done(1)
    return outcome


# --- selection, preview, confirmation and result ---

RequestIds = Annotated[
    list[str] | None, typer.Argument(metavar="REQUEST_ID...", help="Only these, by the requestId of their 202: rsv_….")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done, and what is refused.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]


async def selected(
    backend: Backend, request_ids: Sequence[str], query: SubmissionQuery
) -> tuple[Sequence[SubmissionSummary], Sequence[str]]:
    """The submissions with these request ids, or all that match `query`; and the request ids that no worker has ingested. Raises
    `WrongUsage` unless exactly one of the two selects."""
    if bool(request_ids) == (query != SubmissionQuery()):
        raise WrongUsage("Select submissions: by request ids, or by filters such as --account, --status or --reason.")
    if request_ids:
        found = await backend.overview.summaries(request_ids)
        statuses = await backend.overview.statuses(request_ids)
        unknown = [each for each in request_ids if each not in statuses]
        # A duplicate's id resolves to the submission that it duplicates.
        return found, unknown if len(found) + len(unknown) >= len({*request_ids}) else ()
    rows: list[SubmissionSummary] = []
    async with aclosing(SubmissionSearch(backend.overview, backend.request_ids).pages(query, page=_PAGE)) as pages:
        async for page, _ in pages:
            rows += page
    return rows, ()


def groups_of(found: Sequence[SubmissionSummary]) -> Iterator[Mapping[str, str]]:
    """The group of each in a preview: its account, its status, and why its last try ended."""
    return ({"account": each.account_id, "status": each.status.value, "reason": each.reason or ""} for each in found)


def preview(groups: Iterable[Mapping[str, str]], plan: Plan[Any], doing: str, *, as_json: bool) -> None:
    """Prints how many of each group would be repaired, and how many are refused for which reason."""
    counts = Counter(tuple(group.items()) for group in groups)
    rows = [{**dict(group), "count": count} for group, count in sorted(counts.items())]
    if as_json:
        chosen, already = len(plan.chosen), len(plan.settled)
        show_json({"dryRun": True, "selected": chosen, "groups": rows, "already": already, "refused": plan.refused})
        return
    if rows:
        show_rows(rows, [*rows[0]], as_json=False)
    others = [f"{len(plan.settled)} are so already"] if plan.settled else []
    others += [f"{count} refused ({why})" for why, count in Counter(plan.refused.values()).items()]
    passed_over = f" {'; '.join(others)}." if others else ""
    say(f"{len(plan.chosen)} would be {doing}.{passed_over}")


def agreed(question: str, *, yes: bool) -> None:
    """Asks for confirmation on a terminal. Raises `Failed` if the answer is no."""
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        raise Failed("nothing was changed")


def finish(outcome: Outcome, plan: Plan[Any], done: str, *, as_json: bool) -> None:
    """Prints the result. Raises `Failed` if some failed, were refused, or are left."""
    refused = {**plan.refused, **outcome.failed}
    already = outcome.already + len(plan.settled)
    counts = {"selected": len(plan.chosen), "done": outcome.done, "already": already}
    sentence = f"{outcome.done} {done}{f', {already} were so already' if already else ''}."
    report({"dryRun": False, **counts, "failed": refused, "left": outcome.left}, sentence, as_json=as_json)
    for request_id, why in list(refused.items())[:_LISTED]:
        note(f"{request_id}: {why}")
    if len(refused) > _LISTED:
        note(f"and {len(refused) - _LISTED} more; --json lists all")
    if outcome.left:
        why = outcome.outage or "interrupted"
        raise Failed(f"{outcome.left} were not tried: {why}. Run the same command again to continue.")
    if refused:
        raise Failed(f"{len(refused)} could not be {done}.")


# --- retrying now -------------------------------------------------------------------------------------------------------------


def plan_retry(found: Sequence[SubmissionSummary], *, now: str) -> Plan[SubmissionSummary]:
    """Chooses those of `found` that wait until after `now` (ISO 8601): for a push, a look-up, or the cancellation in their PMS."""
    chosen: list[SubmissionSummary] = []
    settled: list[str] = []
    refused: dict[str, str] = {}
    for each in found:
        why = None if each.held or each.due_at is not None else _nothing_due(each)
        if why is not None:
            refused[each.request_id] = why
        elif each.held or (each.due_at is not None and each.due_at <= now):
            settled.append(each.request_id)
        else:
            chosen.append(each)
    return Plan(chosen, settled, refused)


def _nothing_due(summary: SubmissionSummary) -> str:
    match summary.status:
        case Status.FAILED:
            return "FAILED: `forwarder dead-letters replay` puts it back"
        case Status.IN_DOUBT:
            return "IN_DOUBT, and its PMS cannot be asked: `forwarder submissions settle`"
        case Status.PENDING | Status.CONFIRMED | Status.REJECTED | Status.CANCELLED:
            return f"{summary.status.value}: nothing is left to do"
        case _:
            assert_never(summary.status)


class Retries:
    """Makes waiting submissions due at once. Does not change the account's rate limits, nor the wait after an ambiguous push."""

    def __init__(self, repairs: "Repairs", clock: Clock, audit: Audit) -> None:
        self._repairs = repairs
        self._clock = clock
        self._audit = audit

    async def run(self, plan: Plan[SubmissionSummary], *, stop: Stop, on_done: OnDone = lambda _count: None) -> Outcome:
        """Retries in batches, each in one transaction with an audit entry. Submissions that a worker has claimed meanwhile count as
        `already`."""
        outcome, chosen = Outcome(), plan.chosen
        for first in range(0, len(chosen), _AT_ONCE):
            some = chosen[first : first + _AT_ONCE]
            if stop.is_set():
                outcome.left = len(chosen) - first
                break
            try:
                done = await self._make_due(some)
            except StoreUnavailable as error:
                outcome.left, outcome.outage = len(chosen) - first, str(error)
                break
            outcome.done += done
            outcome.already += len(some) - done
            on_done(len(some))
        return outcome

    async def _make_due(self, some: Sequence[SubmissionSummary]) -> int:
        ids = [each.request_id for each in some]
        async with self._audit.operation("submissions.retry", count=len(ids), submissions=ids[:_NAMED]):
            return await self._repairs.make_due([each.id for each in some], now=self._clock.now())


@grouped
def retry(
    request_ids: RequestIds = None,
    *,
    filters: Filters,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make submissions that wait for their next try due now: pushes, look-ups, and cancellations in the PMS.

    Paused accounts, rate limits and breakers still apply, and a push that may have reached its PMS still waits first.
    """
    with_backend(partial(_retry, request_ids or [], filters.query(), dry_run, yes, as_json))


async def _retry(
    request_ids: Sequence[str], query: SubmissionQuery, dry_run: bool, yes: bool, as_json: bool, backend: Backend
) -> None:
    found, unknown = await selected(backend, request_ids, query)
    plan = plan_retry(found, now=iso(backend.clock.now())).refusing(unknown)
    if dry_run:
        preview(groups_of(plan.chosen), plan, "made due", as_json=as_json)
        return
    agreed(f"Make {len(plan.chosen)} due now?", yes=yes or bool(request_ids))
    with stop_on_signal() as stop, progress(len(plan.chosen), "Retrying") as on_done:
        outcome = await Retries(backend.repairs, backend.clock, backend.audit).run(plan, stop=stop, on_done=on_done)
    finish(outcome, plan, "made due", as_json=as_json)
