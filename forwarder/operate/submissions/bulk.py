"""Repairs of many submissions at once: plans first, so that the operator sees what would be done and refused, then repairs each on
its own. A second run continues where the first stopped. Retrying at once and cancelling are such repairs; so is settling."""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Final, Generic, TypeVar

from typer import Argument, Option, confirm

from forwarder.assembly.backend import Backend
from forwarder.operate.command import open_deployment, require_known, stop_on_signal
from forwarder.operate.output import Block, Failed, Printed, Table, WrongUsage, progress
from forwarder.operate.submissions.search import SearchFilters, SubmissionSearch, not_found, status_after
from forwarder.oversight.audit import OUTAGES, Audit
from forwarder.pms.registry import takes_cancellations
from forwarder.process.clock import Clock, iso
from forwarder.process.supervision import Stop
from forwarder.reservation.checks.card_numbers import mask
from forwarder.reservation.outcome import MAX_REASON, CancellationRequest, CancellationStatus, Status
from forwarder.store.lists.port import SubmissionQuery, SubmissionSummary
from forwarder.store.submissions.repairs import Repairs
from forwarder.topics.codec import MessageSigner, encode_cancellation
from forwarder.topics.port import Publisher

_LISTED: Final = 10

T = TypeVar("T")
OnDone = Callable[[int], None]  # called with the number of further submissions processed


@dataclass(frozen=True, slots=True)
class Plan(Generic[T]):
    """The plan of a repair. `settled`: nothing left to do for these; `refused`: reasons by request id; `skipped`: likewise, but the
    operator did not name these: a search matched them."""

    chosen: Sequence[T]
    settled: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def of_selection(self, named: Sequence[str], unknown: Sequence[str]) -> "Plan[T]":
        """This plan for the request ids `named`, of which no worker ingested the `unknown` ones; without any, for a search."""
        if not named:
            return replace(self, refused={}, skipped=self.refused)
        return replace(self, refused={**self.refused, **dict.fromkeys(unknown, "unknown submission")})


@dataclass(slots=True)
class Outcome:
    """`done`: changed. `already`: nothing to change. `failed`: reasons by request id. `left`: not tried, for `outage` or a stop."""

    done: int = 0
    already: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    outage: str | None = None


async def run_each(
    chosen: Sequence[T],
    name: Callable[[T], str],
    repair: Callable[[Sequence[T]], Awaitable[int]],
    *,
    at_once: int = 1,
    stop: Stop,
    on_done: OnDone = lambda _: None,
) -> Outcome:
    """Repairs `chosen`, `at_once` at a time, until `stop`, or an outage. `name` gives the request id; `repair` returns how many it
    changed, and raises `Failed` if these cannot be repaired: the others can."""
    outcome = Outcome()
    for first in range(0, len(chosen), at_once):
        some, outcome.left = chosen[first : first + at_once], len(chosen) - first
        if stop.is_set():
            break
        try:
            done = await repair(some)
            outcome.done, outcome.already = outcome.done + done, outcome.already + len(some) - done
        except Failed as error:
            outcome.failed |= {name(each): str(error) for each in some}
        except OUTAGES as error:
            outcome.outage = str(error)
            break
        outcome.left = 0
        on_done(len(some))
    return outcome


# --- selection, preview, confirmation and result ---

RequestIds = Annotated[
    list[str] | None, Argument(metavar="REQUEST_ID...", help="Only these, by the requestId of their 202: rsv_….")
]
Yes = Annotated[bool, Option("--yes", "-y", help="Skip the confirmation prompt. Without a terminal there is none.")]


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether a repair of many is made at once, asked for, or only shown.

    dry_run: Only show what would be done, and what is refused."""

    dry_run: bool = False
    yes: Yes = False


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
    pages = SubmissionSearch(backend.overview, backend.request_ids).pages(query, page=1000)
    rows = [each async for page, _ in pages for each in page]
    await require_known(backend, rows, workspace=query.workspace_id, account=query.account_id)
    return rows, ()


def groups_of(found: Sequence[SubmissionSummary]) -> Iterator[Mapping[str, str]]:
    """The group of each in a preview: its account, its status, and why its last try ended."""
    return ({"account": each.account_id, "status": each.status.value, "reason": each.reason or ""} for each in found)


def agreed(question: str, *, yes: bool) -> None:
    """Asks for confirmation on a terminal. Raises `Failed` if the answer is no."""
    if not yes and sys.stdin.isatty() and not confirm(question, err=True):
        raise Failed("nothing was changed")


async def carry_out(
    plan: Plan[T],
    groups: Iterable[Mapping[str, str]],
    repair: Callable[..., Awaitable[Outcome]],
    consent: Consent,
    *,
    done: str,
    question: str,
    planned: str | None = None,
) -> Printed:
    """Asks, calls `repair` with `stop` and `on_done`, and shows the result. `done`, `planned`: what is done, in words. A dry run
    only shows how many of each of `groups` would be repaired, and how many are refused or skipped for which reason."""
    skipped = [f"{count} skipped ({why})" for why, count in Counter(plan.skipped.values()).items()]
    if consent.dry_run:
        counts = Counter(tuple(group.items()) for group in groups)
        rows: list[dict[str, Any]] = [{**dict(group), "count": count} for group, count in sorted(counts.items())]
        others = [f"{len(plan.settled)} already are"] if plan.settled else []
        others += [f"{count} refused ({why})" for why, count in Counter(plan.refused.values()).items()] + skipped
        passed_over = f" {'; '.join(others)}." if others else ""
        text: list[Block] = [Table(rows, [*rows[0]])] if rows else []
        text.append(f"{len(plan.chosen)} would be {planned or done}.{passed_over}")
        numbers = {"selected": len(plan.chosen), "groups": rows, "already": len(plan.settled)}
        return Printed({"dryRun": True, **numbers, "refused": plan.refused, "skipped": plan.skipped}, text)
    agreed(question, yes=consent.yes)
    with stop_on_signal() as stop, progress(len(plan.chosen), "Repairing") as on_done:
        outcome = await repair(stop=stop, on_done=on_done)
    refused, already = {**plan.refused, **outcome.failed}, outcome.already + len(plan.settled)
    result: dict[str, Any] = {"dryRun": False, "selected": len(plan.chosen), "done": outcome.done, "already": already}
    notes = [f"{request_id}: {why}" for request_id, why in list(refused.items())[:_LISTED]]
    if len(refused) > _LISTED:
        notes.append(f"and {len(refused) - _LISTED} more; --json lists all")
    failed = f"{len(refused)} could not be {done}." if refused else None
    if outcome.left:
        why = outcome.outage or "interrupted"
        failed = f"{outcome.left} were not tried: {why}. Run the same command again to continue."
    sentence = "; ".join([f"{outcome.done} {done}{f', {already} already were' if already else ''}", *skipped])
    result |= {"failed": refused, "skipped": plan.skipped, "left": outcome.left}
    return Printed(result, f"{sentence}.", notes, failed)


# --- retrying now -------------------------------------------------------------------------------------------------------------


def plan_retry(found: Sequence[SubmissionSummary], *, now: str) -> Plan[SubmissionSummary]:
    """Chooses those of `found` that wait until after `now` (ISO 8601): for a push, a look-up, or the cancellation in their PMS."""
    advice = {
        Status.FAILED: "FAILED: `forwarder dead-letters replay` puts it back",
        Status.IN_DOUBT: "IN_DOUBT, and its PMS cannot be asked: `forwarder submissions settle`",
    }
    chosen, settled, refused = [], [], {}
    for each in found:
        if each.held or (each.due_at is not None and each.due_at <= now):
            settled.append(each.request_id)
        elif each.due_at is not None:
            chosen.append(each)
        else:
            refused[each.request_id] = advice.get(each.status, f"{each.status.value}: nothing is left to do")
    return Plan(chosen, settled, refused)


async def make_due(
    plan: Plan[SubmissionSummary],
    repairs: Repairs,
    clock: Clock,
    audit: Audit,
    *,
    stop: Stop,
    on_done: OnDone = lambda _: None,
) -> Outcome:
    """Makes waiting submissions due at once, in batches, each in one transaction with an audit entry. Those that a worker has
    claimed meanwhile count as `already`. Does not change the account's rate limits, nor the wait after an ambiguous push."""

    async def repair(some: Sequence[SubmissionSummary]) -> int:
        ids = [each.request_id for each in some]
        async with audit.operation("submissions.retry", count=len(ids), submissions=ids[:50]):
            return await repairs.make_due([each.id for each in some], now=clock.now())

    return await run_each(plan.chosen, lambda each: each.request_id, repair, at_once=200, stop=stop, on_done=on_done)


async def retry(request_ids: RequestIds = None, *, filters: SearchFilters, consent: Consent) -> Printed:
    """Make submissions that wait for their next try due now: pushes, look-ups, and cancellations in the PMS.

    Paused accounts, rate limits and breakers still apply, and a push that may have reached its PMS still waits first. Submissions
    that match the filters but wait for nothing are skipped. Exit code 1 if one that you named cannot be tried."""
    query = filters.query()
    async with open_deployment() as backend:
        found, unknown = await selected(backend, request_ids or [], query)
        plan = plan_retry(found, now=iso(backend.clock.now())).of_selection(request_ids or [], unknown)
        making = partial(make_due, plan, backend.repairs, backend.clock, backend.audit)
        consent = replace(consent, yes=consent.yes or bool(request_ids))
        question = f"Make {len(plan.chosen)} due now?"
        return await carry_out(plan, groups_of(plan.chosen), making, consent, done="made due", question=question)


# --- cancelling, by the same path as a caller ---


class CannotCancel(Failed):
    """There is nothing to cancel, or the PMS does not support it."""


@dataclass(frozen=True, slots=True)
class Cancellations:
    """Asks the workers to cancel submissions, by a message on the requests topic."""

    backend: Backend
    signer: MessageSigner

    async def request(self, request_id: str, reason: str | None) -> Status | None:
        """Requests a cancellation and returns the submission's status; CANCELLED if there is nothing left to do, None if no such
        submission was ingested. Asking twice cancels once. Raises `CannotCancel`, and the errors of the store and the log."""
        async with self.backend.log.publisher() as publisher:
            return await self._request(publisher, request_id, reason)

    async def run(self, plan: Plan[str], why: str | None, *, stop: Stop, on_done: OnDone = lambda _: None) -> Outcome:
        async def cancel(request_ids: Sequence[str]) -> int:
            (request_id,) = request_ids
            if (status := await self._request(publisher, request_id, why)) is None:
                raise Failed("unknown submission")
            return status is not Status.CANCELLED

        async with self.backend.log.publisher() as publisher:
            return await run_each(plan.chosen, str, cancel, stop=stop, on_done=on_done)

    async def _request(self, publisher: Publisher, request_id: str, reason: str | None) -> Status | None:
        backend = self.backend
        if (found := await backend.overview.find(request_id)) is None:
            return None
        summary, stored = found
        if stored.status in {Status.REJECTED, Status.FAILED}:
            raise CannotCancel(f"{request_id} is {stored.status.value}: there is no reservation to cancel.")
        if stored.status is Status.CANCELLED:
            return stored.status
        account_id, now = summary.account_id, backend.clock.now()
        account = await backend.directory.account(account_id)
        if account is not None and not takes_cancellations(account, backend.clock):
            raise CannotCancel(f"a PMS of kind {account.kind} takes no cancellations: cancel it there.")
        if stored.cancellation is not None and stored.cancellation.status is CancellationStatus.REQUESTED:
            return stored.status
        key, why = f"{account_id}:{summary.property_id}", reason and mask(reason)
        target, workspace = summary.request_id, None if account is None else account.workspace_id
        request = CancellationRequest(target, account_id, key, now, why, stored.revision, partition=stored.partition)
        async with backend.audit.request("submission.cancel", workspace=workspace, target=target, account=account_id):
            message = self.signer.signed(encode_cancellation(request))
            await publisher.publish(backend.settings.topics.requests, [message])
        return stored.status


def plan_cancel(found: Sequence[SubmissionSummary]) -> Plan[str]:
    """Plans to cancel those of `found` that may be cancelled, by request id."""
    settled = [each.request_id for each in found if each.status is Status.CANCELLED]
    nothing = {each.request_id: each.status for each in found if each.status in {Status.REJECTED, Status.FAILED}}
    refused = {each: f"{status.value}: there is no reservation to cancel" for each, status in nothing.items()}
    return Plan([each.request_id for each in found if each.request_id not in {*settled, *refused}], settled, refused)


@dataclass(frozen=True, slots=True)
class _CancelFilters(SearchFilters):
    """The filters for cancelling: here --reason is the reason to cancel, and there is no --pms-id.

    reason: Only those whose last try ended for this reason."""

    reason: Annotated[str | None, Option("--last-reason")] = None
    pms_id: str | None = field(default=None, init=False)


async def cancel(
    request_ids: RequestIds = None,
    why: Annotated[str | None, Option("--reason", help="The reason, which the callers can read.")] = None,
    *,
    filters: _CancelFilters,
    consent: Consent,
) -> Printed:
    """Cancel submissions: pending ones are not sent, confirmed ones are cancelled in their PMS. Asking twice cancels once.

    Submissions that match the filters but were rejected or failed are skipped. Exit code 1 if another one cannot be cancelled, or
    one that you named."""
    if why is not None and (len(why) > MAX_REASON or "\0" in why):
        raise WrongUsage(f"--reason has at most {MAX_REASON:,} characters, and not the character U+0000.")
    query = filters.query()
    async with open_deployment() as backend:
        cancellations = Cancellations(backend, await backend.signer())
        if request_ids is not None and len(request_ids) == 1 and query == SubmissionQuery() and not consent.dry_run:
            (one,) = request_ids
            if (status := await cancellations.request(one, why)) is None:
                raise not_found(one)
            then = "A worker cancels it; `forwarder submissions show` shows the result."
            return status_after(one, status, "There is nothing left to do." if status is Status.CANCELLED else then)
        found, unknown = await selected(backend, request_ids or [], query)
        plan = plan_cancel(found).of_selection(request_ids or [], unknown)
        chosen = {*plan.chosen}
        groups = groups_of([each for each in found if each.request_id in chosen])
        question = f"Cancel {len(plan.chosen)}? What was made is cancelled in its PMS."
        words = {"done": "asked to be cancelled", "planned": "cancelled", "question": question}
        return await carry_out(plan, groups, partial(cancellations.run, plan, why), consent, **words)
