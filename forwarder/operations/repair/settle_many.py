"""Settles many submissions in doubt from a file: CSV with a header, or JSON, one object per line."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from forwarder.operations.repair.bulk import CannotRepair, OnDone, Outcome, Plan, run_each
from forwarder.operations.repair.settle import NotInDoubt, Repair, account_deadline_seconds
from forwarder.process.supervision import Stop
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary
from forwarder.tenancy.port import Directory, NotKnown

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview

_AT_ONCE: Final = 500
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


class Decision(StrEnum):
    """An operator's finding in the PMS."""

    CONFIRMED = "confirmed"
    NOT_MADE = "not_made"
    REJECTED = "rejected"


class Settlement(BaseModel):
    """The decision about one submission. `pms_reservation_id`: if confirmed. `reason`: if rejected; its caller can read it."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, validate_by_alias=True)

    request_id: _Text
    decision: Decision
    pms_reservation_id: _Text | None = None
    reason: _Text | None = Field(default=None)

    @model_validator(mode="after")
    def _has_what_its_decision_needs(self) -> "Settlement":
        needed = {
            Decision.CONFIRMED: ("pmsReservationId", self.pms_reservation_id),
            Decision.REJECTED: ("reason", self.reason),
        }
        name, given = needed.get(self.decision, ("", ""))
        if given is None:
            raise ValueError(f"a decision {self.decision.value} needs {name}")
        return self


@dataclass(frozen=True, slots=True)
class LineFault:
    """An error in a line, counted from 1."""

    line: int
    says: str


def read_settlements(text: str) -> tuple[Sequence[Settlement], Sequence[LineFault]]:
    """The settlements, and the errors of lines that cannot be read. JSON if the first character is a brace. Naming a submission
    again is an error of the later line."""
    settlements: list[Settlement] = []
    faults: list[LineFault] = []
    lines: dict[str, int] = {}
    for number, values in _json_lines(text) if text.lstrip().startswith("{") else _csv_lines(text):
        settlement, fault = _settlement(values)
        if settlement is not None and settlement.request_id in lines:
            fault = f"{settlement.request_id} is already on line {lines[settlement.request_id]} already"
        if fault is not None:
            faults.append(LineFault(number, fault))
        elif settlement is not None:
            lines[settlement.request_id] = number
            settlements.append(settlement)
    return settlements, faults


def _settlement(values: Mapping[str, Any] | str) -> tuple[Settlement | None, str | None]:
    """The settlement of a line, or the error in it; a text is the reason why the line could not be parsed."""
    if isinstance(values, str):
        return None, values
    try:
        return Settlement.model_validate(values), None
    except ValidationError as error:
        return None, "; ".join(map(_said, error.errors()))


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


def _said(error: ErrorDetails) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}" if where else error["msg"].removeprefix("Value error, ")


class Settlements:
    """Settles the submissions of a file."""

    def __init__(self, repair: Repair, overview: "Overview", directory: Directory) -> None:
        self._repair = repair
        self._overview = overview
        self._directory = directory

    async def plan(self, settlements: Sequence[Settlement]) -> Plan[Settlement]:
        """Chooses those whose submission is in doubt. Those already settled as the file says count as settled; refuses the rest."""
        chosen: list[Settlement] = []
        settled: list[str] = []
        refused: dict[str, str] = {}
        known = await self._summaries([each.request_id for each in settlements])
        for each in settlements:
            summary = known.get(each.request_id)
            if summary is None:
                refused[each.request_id] = "unknown submission"
            elif summary.status is Status.IN_DOUBT:
                chosen.append(each)
            elif _is_so(each, summary):
                settled.append(each.request_id)
            else:
                refused[each.request_id] = f"{summary.status.value}: there is nothing to settle"
        return Plan(chosen, settled, refused)

    async def run(self, plan: Plan[Settlement], *, stop: Stop, on_done: OnDone = lambda _count: None) -> Outcome:
        """Settles each in its own transaction, with an audit entry."""
        return await run_each(plan.chosen, lambda each: each.request_id, self._settle, stop=stop, on_done=on_done)

    async def _settle(self, settlement: Settlement) -> bool:
        request_id = settlement.request_id
        try:
            match settlement.decision:
                case Decision.CONFIRMED:
                    await self._repair.confirm(request_id, settlement.pms_reservation_id or "")
                case Decision.REJECTED:
                    await self._repair.reject(request_id, settlement.reason or "")
                case Decision.NOT_MADE:
                    seconds = await account_deadline_seconds(request_id, self._overview, self._directory)
                    await self._repair.push_again(request_id, deadline_seconds=seconds)
        except NotInDoubt:
            known = await self._summaries([request_id])
            if request_id in known and _is_so(settlement, known[request_id]):
                return False
            raise CannotRepair("a worker was just looking for it, or it was settled meanwhile; try again") from None
        except NotKnown as error:
            raise CannotRepair(str(error)) from None
        return True

    async def _summaries(self, request_ids: Sequence[str]) -> Mapping[str, SubmissionSummary]:
        found: dict[str, SubmissionSummary] = {}
        for first in range(0, len(request_ids), _AT_ONCE):
            some = await self._overview.summaries(request_ids[first : first + _AT_ONCE])
            found |= {each.request_id: each for each in some}
        return found


def _is_so(settlement: Settlement, summary: SubmissionSummary) -> bool:
    match settlement.decision:
        case Decision.CONFIRMED:
            return summary.status is Status.CONFIRMED and summary.pms_reservation_id == settlement.pms_reservation_id
        case Decision.REJECTED:
            return summary.status is Status.REJECTED
        case Decision.NOT_MADE:
            return summary.status is Status.PENDING
