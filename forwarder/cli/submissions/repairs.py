"""`forwarder submissions retry|settle|cancel`: operators' decisions about submissions, one or many."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar, assert_never

import typer

from forwarder.assembly.backend import Backend
from forwarder.cli.backend import stop_on_signal, with_backend
from forwarder.cli.options import grouped, text_from
from forwarder.cli.output import AsJson, Failed, WrongUsage, progress, say, show_json
from forwarder.cli.submissions.bulk import DryRun, RequestIds, Yes, agreed, finish, preview, preview_json, selected
from forwarder.cli.submissions.query import Filters, letter_id
from forwarder.operations.repair.bulk import Plan, Retries, plan_retry
from forwarder.operations.repair.cancellation import Cancellations, CannotCancel, plan_cancel
from forwarder.operations.repair.settle import NotInDoubt, Repair, account_deadline_seconds
from forwarder.operations.repair.settle_many import Settlement, Settlements, read_settlements
from forwarder.operations.show.search import SubmissionQuery
from forwarder.process.clock import iso
from forwarder.reservation.cancellation import MAX_REASON
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary

RequestId = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")]
_MAX_SAID = 200

T = TypeVar("T")


# --- retrying now -----------------------------------------------------------------------------------------------------


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
    plan = _refusing(unknown, plan_retry(found, now=iso(backend.clock.now())))
    if dry_run:
        _preview(_groups(plan.chosen), plan, "made due", as_json=as_json)
        return
    agreed(f"Make {len(plan.chosen)} due now?", yes=yes or bool(request_ids))
    with stop_on_signal() as stop, progress(len(plan.chosen), "Retrying") as on_done:
        outcome = await Retries(backend.repairs, backend.clock, backend.audit).run(plan, stop=stop, on_done=on_done)
    finish(outcome, plan, "made due", as_json=as_json)


def _groups(found: Sequence[SubmissionSummary]) -> Iterator[Mapping[str, str]]:
    return ({"account": each.account_id, "status": each.status.value, "reason": each.reason or ""} for each in found)


def _refusing(unknown: Sequence[str], plan: Plan[T]) -> Plan[T]:
    """`plan`, with a refusal for each request id that no worker has ingested."""
    return replace(plan, refused={**plan.refused, **dict.fromkeys(unknown, "unknown submission")})


def _preview(groups: Iterator[Mapping[str, str]], plan: Plan[T], doing: str, *, as_json: bool) -> None:
    (preview_json if as_json else partial(preview, doing=doing))(groups, plan)


# --- settling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """An operator's finding in the PMS: exactly one of these."""

    confirmed: Annotated[str | None, typer.Option(metavar="PMS_ID", help="The PMS has it, under this identifier.")] = (
        None
    )
    not_made: Annotated[
        bool,
        typer.Option(
            "--not-made", help="The PMS does not have it and never will: push it again, until the account's deadline."
        ),
    ] = False
    rejected: Annotated[
        str | None, typer.Option(metavar="REASON", help="The PMS does not have it: give up, for this reason.")
    ] = None

    def require_one(self) -> None:
        """Raises `WrongUsage`."""
        if (self.confirmed is not None) + self.not_made + (self.rejected is not None) != 1:
            raise WrongUsage("Give your finding in the PMS: --confirmed PMS_ID, or --not-made, or --rejected REASON.")
        for option, said in (("--confirmed", self.confirmed), ("--rejected", self.rejected)):
            if said is not None and not said.strip():
                raise WrongUsage(f"{option} must not be empty.")


@dataclass(frozen=True, slots=True)
class _ForAudit:
    """Details for the audit trail."""

    by: Annotated[str, typer.Option(help="Who checked the PMS, for the audit trail.")] = ""
    note: Annotated[str, typer.Option(help="A note for the audit trail, such as a ticket.")] = ""

    def check(self) -> None:
        """Raises `WrongUsage`."""
        for option, value in (("--by", self.by), ("--note", self.note)):
            if len(value) > _MAX_SAID or "\0" in value:
                raise WrongUsage(f"{option} has at most {_MAX_SAID} characters, and not the character U+0000.")

    def repair(self, backend: Backend) -> Repair:
        return Repair(backend.repairs, backend.clock, backend.audit, by=self.by, note=self.note)


@grouped
def settle(
    request_id: Annotated[
        str | None, typer.Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")
    ] = None,
    *,
    found: _Found,
    file: Annotated[
        Path | None,
        typer.Option(
            help="Settle many: CSV with the columns requestId, decision (confirmed, not_made, rejected), pmsReservationId and "
            "reason, or JSON with such members, an object a line; - is standard input."
        ),
    ] = None,
    audited: _ForAudit,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Settle submissions that are IN_DOUBT. Check the PMS first: your decision is not verified."""
    audited.check()
    if file is not None:
        if request_id is not None or found != _Found():
            raise WrongUsage("Give either --file, or one submission and what you found.")
        with_backend(partial(_settle_file, _settlements(file), audited, dry_run, yes, as_json))
        return
    if request_id is None:
        raise WrongUsage("Say which submission, by its REQUEST_ID, or give --file.")
    found.require_one()
    if dry_run:
        raise WrongUsage("--dry-run goes with --file.")
    _show_one(request_id, *with_backend(partial(_settle, request_id, found, audited)), as_json=as_json)


def _show_one(request_id: str, status: Status, following: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"requestId": request_id, "status": status.value, "next": following})
    else:
        say(f"{request_id} is {status.value}. {following}")


def _settlements(file: Path) -> Sequence[Settlement]:
    """Raises `WrongUsage`, which names every line at fault: then nothing is changed."""
    settlements, faults = read_settlements(text_from(file))
    if faults:
        lines = "\n".join(f"line {fault.line}: {fault.says}" for fault in faults)
        raise WrongUsage(f"{file} cannot be carried out, and nothing was changed.\n{lines}")
    if not settlements:
        raise WrongUsage(f"{file} settles nothing: it has no line.")
    return settlements


async def _settle_file(
    settlements: Sequence[Settlement], audited: _ForAudit, dry_run: bool, yes: bool, as_json: bool, backend: Backend
) -> None:
    settling = Settlements(audited.repair(backend), backend.overview, backend.directory)
    plan = await settling.plan(settlements)
    if dry_run:
        _preview(({"decision": each.decision.value} for each in plan.chosen), plan, "settled", as_json=as_json)
        return
    agreed(f"Settle {len(plan.chosen)}?", yes=yes)
    with stop_on_signal() as stop, progress(len(plan.chosen), "Settling") as on_done:
        outcome = await settling.run(plan, stop=stop, on_done=on_done)
    finish(outcome, plan, "settled", as_json=as_json)


async def _settle(request_id: str, found: _Found, audited: _ForAudit, backend: Backend) -> tuple[Status, str]:
    """Settles it; returns its status, and what happens next."""
    repair = audited.repair(backend)
    try:
        if found.confirmed is not None:
            await repair.confirm(request_id, found.confirmed.strip())
            return Status.CONFIRMED, "A worker publishes its result event within half a minute."
        if found.rejected is not None:
            await repair.reject(request_id, found.rejected.strip())
            return Status.REJECTED, "A worker publishes its result event within half a minute."
        seconds = await account_deadline_seconds(request_id, backend.overview, backend.directory)
        await repair.push_again(request_id, deadline_seconds=seconds)
    except NotInDoubt:
        raise await _not_in_doubt(backend, request_id) from None
    return Status.PENDING, f"A worker pushes it again, for up to {seconds:,} s, the deadline of its account."


async def _not_in_doubt(backend: Backend, request_id: str) -> Failed:
    """The reason why it cannot be settled, with the remedy."""
    found = await backend.overview.find(request_id)
    if found is None:
        return not_taken_in(request_id)
    summary = found[0]
    match summary.status:
        case Status.PENDING:
            advice = "workers are processing it; `forwarder submissions show` shows the progress"
        case Status.FAILED:
            advice = f"it was not made; `forwarder dead-letters replay {letter_id(summary)}` puts it back"
        case Status.IN_DOUBT:
            advice = "a worker was just looking for it; try again"
        case Status.CONFIRMED | Status.REJECTED | Status.CANCELLED:
            advice = "there is nothing to settle"
        case _:
            assert_never(summary.status)
    return Failed(f"{request_id} is {summary.status.value}: {advice}.")


# --- cancelling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cancelled(Filters):
    """The filters for cancelling: here --reason is the reason to cancel, and there is no --pms-id."""

    reason: Annotated[
        str | None, typer.Option("--last-reason", help="Only those whose last try ended for this reason.")
    ] = None
    pms_id: str | None = field(default=None, init=False)


@grouped
def cancel(
    request_ids: RequestIds = None,
    why: Annotated[str | None, typer.Option("--reason", help="The reason, which the callers can read.")] = None,
    *,
    filters: _Cancelled,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel submissions: pending ones are not sent, confirmed ones are cancelled in their PMS. Asking twice cancels once."""
    if why is not None and (len(why) > MAX_REASON or "\0" in why):
        raise WrongUsage(f"--reason has at most {MAX_REASON:,} characters, and not the character U+0000.")
    query = filters.query()
    if request_ids is not None and len(request_ids) == 1 and query == SubmissionQuery() and not dry_run:
        (one,) = request_ids
        _show_one(one, *with_backend(partial(_cancel, one, why)), as_json=as_json)
        return
    with_backend(partial(_cancel_many, request_ids or [], query, why, dry_run, yes, as_json))


async def _cancel(request_id: str, reason: str | None, backend: Backend) -> tuple[Status, str]:
    """Its status, and what happens next."""
    try:
        status = await (await _cancellations(backend)).request(request_id, reason)
    except CannotCancel as error:
        raise Failed(str(error)) from None
    if status is None:
        raise not_taken_in(request_id)
    if status is Status.CANCELLED:
        return status, "There is nothing left to do."
    return status, "A worker cancels it; `forwarder submissions show` shows the result."


async def _cancel_many(
    request_ids: Sequence[str],
    query: SubmissionQuery,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    backend: Backend,
) -> None:
    found, unknown = await selected(backend, request_ids, query)
    plan = _refusing(unknown, plan_cancel(found))
    if dry_run:
        chosen = {*plan.chosen}
        _preview(_groups([each for each in found if each.request_id in chosen]), plan, "cancelled", as_json=as_json)
        return
    agreed(f"Cancel {len(plan.chosen)}? What was made is cancelled in its PMS.", yes=yes)
    cancellations = await _cancellations(backend)
    with stop_on_signal() as stop, progress(len(plan.chosen), "Cancelling") as on_done:
        outcome = await cancellations.run(plan, reason, stop=stop, on_done=on_done)
    finish(outcome, plan, "asked to be cancelled", as_json=as_json)


async def _cancellations(backend: Backend) -> Cancellations:
    topic, signer = backend.settings.topics.requests, await backend.signer()
    return Cancellations(backend.overview, backend.directory, backend.log, topic, signer, backend.clock, backend.audit)


def not_taken_in(request_id: str) -> Failed:
    """No worker has taken it in."""
    return Failed(f"submission {request_id} not found; if it was accepted moments ago, try again shortly")
