"""Settling submissions in doubt, one or many: an operator checked the PMS, and says what was made, was not made, or is given up."""

import csv
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from typer import Argument, Option

from forwarder.operate.command import commands, open_deployment, text_from
from forwarder.operate.output import Failed, Printed, WrongUsage
from forwarder.operate.submissions.bulk import Consent, OnDone, Outcome, Plan, cancel, carry_out, retry, run_each
from forwarder.operate.submissions.look_up import look_up
from forwarder.operate.submissions.search import list_submissions, not_found, show, status_after
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock, iso
from forwarder.process.supervision import Stop
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.card_numbers import mask
from forwarder.reservation.outcome import Absent, Confirmed, LookupOutcome, Rejected, Status
from forwarder.store.lists.overview import Overview
from forwarder.store.lists.port import SubmissionSummary
from forwarder.store.submissions.port import Attempt, Work, completed, with_attempt
from forwarder.store.submissions.repairs import Repairs
from forwarder.tenancy.port import DEFAULT_DEADLINE_SECONDS, Directory, NotKnown


class NotInDoubt(Exception):
    """The submission is not IN_DOUBT, or was settled meanwhile: nothing was changed."""


class Repair:
    """Settles what no look-up can. Each call changes everything or nothing, and raises `NotInDoubt` or `StoreUnavailable`. `by` and
    `note`: who checked the PMS, and a note for the audit trail, where card numbers are masked.

    The same transaction puts the result event in the outbox; a worker publishes it. The attempts list the decision as `settle`."""

    def __init__(self, repairs: Repairs, clock: Clock, audit: Audit, *, by: str = "", note: str = "") -> None:
        self._repairs, self._clock, self._audit = repairs, clock, audit
        self._said = {name: mask(text.strip()) for name, text in (("by", by), ("note", note)) if text.strip()}

    async def confirm(self, request_id: str, pms_reservation_id: str) -> None:
        """Confirms it under the PMS's id. A requested cancellation is tried for a day."""
        outcome = Confirmed(pms_reservation_id)
        async with self._settling(request_id, "confirmed", outcome) as (work, attempts, now):
            by = now + timedelta(seconds=DEFAULT_DEADLINE_SECONDS)
            end = partial(completed, work, attempts, Status.CONFIRMED, now=now, evidence=work.evidence)
            if not await self._repairs.settle(end(confirmed=outcome, cancel_by=by)):
                raise NotInDoubt

    async def reject(self, request_id: str, reason: str) -> None:
        """Rejects it: the PMS does not have it. The caller can read `reason`."""
        problem = catalogue.REJECTED_BY_OPERATOR.problem(mask(reason))
        async with self._settling(request_id, "rejected", Rejected(problem)) as (work, attempts, now):
            ended = completed(work, attempts, Status.REJECTED, now=now, problem=problem, evidence=work.evidence)
            if not await self._repairs.settle(ended):
                raise NotInDoubt

    async def push_again(self, request_id: str, *, deadline_seconds: float) -> None:
        """Makes it PENDING again, due at once, for `deadline_seconds`: the PMS does not have it."""
        async with self._settling(request_id, "not_made", Absent()) as (work, attempts, now):
            deadline_at = now + timedelta(seconds=deadline_seconds)
            if not await self._repairs.reopen(work, attempts=attempts, now=now, deadline_at=deadline_at):
                raise NotInDoubt

    @asynccontextmanager
    async def _settling(
        self, request_id: str, decision: str, outcome: LookupOutcome | Rejected
    ) -> AsyncIterator[tuple[Work, tuple[Attempt, ...], datetime]]:
        """The submission for the block to settle, and its attempts with this decision."""
        details = {"decision": decision, **self._said}
        async with self._audit.operation("submission.settle", target=request_id, **details) as operation:
            if (work := await self._repairs.in_doubt(request_id)) is None:
                raise NotInDoubt
            operation.workspace, operation.target = work.submission.workspace_id, work.submission.request_id
            now = self._clock.now()
            yield work, with_attempt(work.attempts, "settle", iso(now), 0, outcome), now


_MAX_NOTE: Final = 200
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


class OperatorFinding(StrEnum):
    CONFIRMED = "confirmed"
    NOT_MADE = "not_made"
    REJECTED = "rejected"


async def decide(
    repair: Repair, overview: Overview, directory: Directory, request_id: str, decision: OperatorFinding, text: str
) -> int | None:
    """Settles a submission. `text`: its id in the PMS if confirmed, the reason if rejected. Returns for how many seconds it is
    pushed again, if it is. Raises `NotInDoubt`, also if it is unknown, `NotKnown` if its account is gone, `StoreUnavailable`."""
    match decision:
        case OperatorFinding.CONFIRMED:
            await repair.confirm(request_id, text)
        case OperatorFinding.REJECTED:
            await repair.reject(request_id, text)
        case OperatorFinding.NOT_MADE:
            if (found := await overview.find(request_id)) is None:
                raise NotInDoubt
            if (account := await directory.account(found[0].account_id)) is None:
                raise NotKnown(f"its account {found[0].account_id} no longer exists, so nothing can be pushed for it")
            await repair.push_again(request_id, deadline_seconds=account.deadline_seconds)
            return account.deadline_seconds
    return None


class Settlement(BaseModel):
    """The decision about one submission. `pms_reservation_id`: if confirmed. `reason`: if rejected; its caller can read it."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, validate_by_alias=True)

    request_id: _Text
    decision: OperatorFinding
    pms_reservation_id: _Text | None = None
    reason: _Text | None = None

    @model_validator(mode="after")
    def _has_what_its_decision_needs(self) -> "Settlement":
        if self.decision is OperatorFinding.CONFIRMED and self.pms_reservation_id is None:
            raise ValueError("a decision confirmed needs pmsReservationId")
        if self.decision is OperatorFinding.REJECTED and self.reason is None:
            raise ValueError("a decision rejected needs reason")
        return self


def read_settlements(text: str) -> tuple[Sequence[Settlement], Sequence[tuple[int, str]]]:
    """The settlements, and the errors of lines, by number, such as a submission named again. JSON if it begins with a brace."""
    settlements, faults = dict[str, tuple[int, Settlement]](), list[tuple[int, str]]()
    for number, values in _json_lines(text) if text.lstrip().startswith("{") else _csv_lines(text):
        if isinstance(values, str):  # the reason why the line could not be parsed
            faults.append((number, values))
            continue
        try:
            settlement = Settlement.model_validate(values)
        except ValidationError as error:
            places = [(".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
            said = [": ".join(filter(None, (where, says.removeprefix("Value error, ")))) for where, says in places]
            faults.append((number, "; ".join(said)))
            continue
        first, _ = settlements.setdefault(settlement.request_id, (number, settlement))
        if first != number:
            faults.append((number, f"{settlement.request_id} is already on line {first}"))
    return [each for _, each in settlements.values()], faults


def _json_lines(text: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, f"not JSON: {error}"


def _csv_lines(text: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    rows = csv.DictReader(text.lstrip("\ufeff").splitlines(), strict=True)
    try:
        for row in rows:
            if None in row or None in row.values():
                yield rows.line_num, f"it has not as many values as the header: {', '.join(rows.fieldnames or ())}"
            else:
                yield rows.line_num, {name.strip(): value for name, value in row.items() if value.strip()}
    except csv.Error as error:
        yield rows.line_num, f"not CSV: {error}"


@dataclass(frozen=True, slots=True)
class Settlements:
    repair: Repair
    overview: Overview
    directory: Directory

    async def plan(self, settlements: Sequence[Settlement]) -> Plan[Settlement]:
        """Chooses those whose submission is in doubt. Those already settled as the file says count as settled; refuses the rest."""
        chosen, settled, refused = [], [], {}
        known = await self._summaries([each.request_id for each in settlements])
        for each in settlements:
            if (summary := known.get(each.request_id)) is None:
                refused[each.request_id] = "unknown submission"
            elif summary.status is Status.IN_DOUBT:
                chosen.append(each)
            elif _is_so(each, summary):
                settled.append(each.request_id)
            else:
                refused[each.request_id] = f"{summary.status.value}: there is nothing to settle"
        return Plan(chosen, settled, refused)

    async def run(self, plan: Plan[Settlement], *, stop: Stop, on_done: OnDone = lambda _count: None) -> Outcome:
        return await run_each(plan.chosen, lambda each: each.request_id, self._settle, stop=stop, on_done=on_done)

    async def _settle(self, settlements: Sequence[Settlement]) -> int:
        (settlement,) = settlements
        request_id, decision = settlement.request_id, settlement.decision
        text = settlement.pms_reservation_id if decision is OperatorFinding.CONFIRMED else settlement.reason
        try:
            await decide(self.repair, self.overview, self.directory, request_id, decision, text or "")
        except NotInDoubt:
            known = (await self._summaries([request_id])).get(request_id)
            if known is not None and _is_so(settlement, known):
                return False
            raise Failed("a worker was just looking for it, or it was settled meanwhile; try again") from None
        except NotKnown as error:
            raise Failed(str(error)) from None
        return True

    async def _summaries(self, request_ids: Sequence[str]) -> Mapping[str, SubmissionSummary]:
        parts = [request_ids[first : first + 500] for first in range(0, len(request_ids), 500)]
        return {each.request_id: each for some in parts for each in await self.overview.summaries(some)}


def _is_so(settlement: Settlement, summary: SubmissionSummary) -> bool:
    as_decided = {OperatorFinding.CONFIRMED: Status.CONFIRMED, OperatorFinding.REJECTED: Status.REJECTED}
    decision, same_id = settlement.decision, summary.pms_reservation_id == settlement.pms_reservation_id
    same = same_id or decision is not OperatorFinding.CONFIRMED
    return same and summary.status is as_decided.get(decision, Status.PENDING)


@dataclass(frozen=True, slots=True)
class _Finding:
    """An operator's finding in the PMS: exactly one of these.

    not_made: The PMS does not have it and never will: push it again, until the account's deadline.
    rejected: The PMS does not have it: give up, for this reason."""

    confirmed: Annotated[str | None, Option(metavar="PMS_ID", help="The PMS has it, under this identifier.")] = None
    not_made: bool = False
    rejected: Annotated[str | None, Option(metavar="REASON")] = None

    def decision(self) -> tuple[OperatorFinding, str]:
        """Raises `WrongUsage`."""
        if (self.confirmed is not None) + self.not_made + (self.rejected is not None) != 1:
            raise WrongUsage("Give your finding in the PMS: --confirmed PMS_ID, or --not-made, or --rejected REASON.")
        if self.not_made:
            return OperatorFinding.NOT_MADE, ""
        decision = OperatorFinding.REJECTED if self.confirmed is None else OperatorFinding.CONFIRMED
        if not (said := (self.confirmed or self.rejected or "").strip()):
            raise WrongUsage(f"--{decision.value} must not be empty.")
        return decision, said


async def settle(
    request_id: Annotated[str | None, Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")] = None,
    *,
    found: _Finding,
    file: Path | None = None,
    by: Annotated[str, Option(help="Who checked the PMS, for the audit trail.")] = "",
    note: Annotated[str, Option(help="A note for the audit trail, such as a ticket.")] = "",
    consent: Consent,
) -> Printed:
    """Settle submissions that are IN_DOUBT. Check the PMS first: your decision is not verified.

    file: Settle many: CSV with the columns requestId, decision (confirmed, not_made, rejected), pmsReservationId and reason, or
        JSON with such members, an object a line; - is standard input."""
    for option, value in (("--by", by), ("--note", note)):
        if len(value) > _MAX_NOTE or "\0" in value:
            raise WrongUsage(f"{option} has at most {_MAX_NOTE} characters, and not the character U+0000.")
    if file is None:
        if request_id is None:
            raise WrongUsage("Say which submission, by its REQUEST_ID, or give --file.")
        decision, text = found.decision()
        if consent.dry_run:
            raise WrongUsage("--dry-run goes with --file.")
        async with open_deployment() as backend:
            repair = Repair(backend.repairs, backend.clock, backend.audit, by=by, note=note)
            try:
                seconds = await decide(repair, backend.overview, backend.directory, request_id, decision, text)
            except NotInDoubt:
                if (known := await backend.overview.find(request_id)) is None:
                    raise not_found(request_id) from None
                now, letter = known[0].status, f"{known[0].request_id}.{known[0].revision}"
                advice = {
                    Status.PENDING: "workers are processing it; `forwarder submissions show` shows the progress",
                    Status.FAILED: f"it was not made; `forwarder dead-letters replay {letter}` puts it back",
                    Status.IN_DOUBT: "a worker was just looking for it; try again",
                }.get(now, "there is nothing to settle")
                raise Failed(f"{request_id} is {now.value}: {advice}.") from None
        if seconds is None:
            following = "A worker publishes its result event within half a minute."
            return status_after(request_id, Status[decision.name], following)
        following = f"A worker pushes it again, for up to {seconds:,} s, the deadline of its account."
        return status_after(request_id, Status.PENDING, following)
    if request_id is not None or found != _Finding():
        raise WrongUsage("Give either --file, or one submission and what you found.")
    settlements, faults = read_settlements(text_from(file))
    if faults:
        lines = "\n".join(f"line {number}: {says}" for number, says in faults)
        raise WrongUsage(f"{file} cannot be carried out, and nothing was changed.\n{lines}")
    if not settlements:
        raise WrongUsage(f"{file} settles nothing: it has no line.")
    async with open_deployment() as backend:
        repair = Repair(backend.repairs, backend.clock, backend.audit, by=by, note=note)
        settling = Settlements(repair, backend.overview, backend.directory)
        plan = await settling.plan(settlements)
        groups, words = ({"decision": each.decision.value} for each in plan.chosen), f"Settle {len(plan.chosen)}?"
        return await carry_out(plan, groups, partial(settling.run, plan), consent, done="settled", question=words)


COMMANDS = commands(show=show, list=list_submissions, look_up=look_up, retry=retry, settle=settle, cancel=cancel)
