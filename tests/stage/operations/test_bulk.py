"""Many repaired at once: what is chosen and refused before anything is done, and what a second run finds left to do."""

import asyncio
from collections.abc import Sequence

import pytest

from forwarder.operate.output import Failed, Printed
from forwarder.operate.submissions.bulk import (
    Consent,
    OnDone,
    Outcome,
    Plan,
    carry_out,
    plan_cancel,
    plan_retry,
    run_each,
)
from forwarder.operate.submissions.settle import OperatorFinding, Settlement, read_settlements
from forwarder.process.clock import iso
from forwarder.process.supervision import Stop
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary
from forwarder.store.submissions.port import StoreUnavailable
from tests.support.cases import for_each
from tests.support.store.stored import LATER
from tests.support.worker.works import NOW


def summary(number: int, status: Status, due_at: str | None = None, *, held: bool = False) -> SubmissionSummary:
    return SubmissionSummary(
        id=number,
        record_id=number,
        request_id=f"rsv_{number}",
        workspace_id="demo",
        account_id="acc",
        status=status,
        property_id="1",
        arrival="2027-03-01",
        departure="2027-03-02",
        attempts=1,
        accepted_at=iso(NOW),
        due_at=due_at,
        problem_code=None,
        revision=0,
        held=held,
    )


def test_only_what_waits_for_later_is_made_due() -> None:
    later = iso(LATER)
    found = [
        summary(1, Status.PENDING, later),
        summary(2, Status.IN_DOUBT, later),
        summary(3, Status.PENDING, iso(NOW)),
        summary(4, Status.PENDING, later, held=True),
        summary(5, Status.IN_DOUBT),
        summary(6, Status.FAILED),
        summary(7, Status.CONFIRMED),
    ]
    plan = plan_retry(found, now=iso(NOW))
    assert [each.id for each in plan.chosen] == [1, 2]
    assert plan.settled == ["rsv_3", "rsv_4"]
    assert list(plan.refused) == ["rsv_5", "rsv_6", "rsv_7"]
    assert "submissions settle" in plan.refused["rsv_5"]
    assert "dead-letters replay" in plan.refused["rsv_6"]


def test_what_ended_without_a_reservation_is_not_cancelled() -> None:
    statuses = (Status.PENDING, Status.CONFIRMED, Status.IN_DOUBT, Status.CANCELLED, Status.FAILED, Status.REJECTED)
    plan = plan_cancel([summary(number, status) for number, status in enumerate(statuses)])
    assert (plan.chosen, plan.settled, [*plan.refused]) == (["rsv_0", "rsv_1", "rsv_2"], ["rsv_3"], ["rsv_4", "rsv_5"])


@pytest.mark.parametrize("dry_run", [False, True])
async def test_what_only_a_search_matched_is_skipped_and_what_was_named_is_refused(dry_run: bool) -> None:
    nothing = {"rsv_3": "CONFIRMED: nothing is left to do"}
    plan = Plan(["rsv_1"], ["rsv_2"], nothing)

    async def repair(*, stop: Stop, on_done: OnDone) -> Outcome:
        return Outcome(done=1)

    async def shown(plan: Plan[str]) -> Printed:
        return await carry_out(plan, [], repair, Consent(dry_run, yes=True), done="made due", question="")

    searched = await shown(plan.of_selection([], []))
    assert searched.failed is None
    assert searched.value["skipped"] == nothing
    assert searched.value["refused" if dry_run else "failed"] == {}
    assert "1 skipped (CONFIRMED: nothing is left to do)." in str(searched.text)
    named = await shown(plan.of_selection(["rsv_1", "rsv_2", "rsv_3", "rsv_4"], ["rsv_4"]))
    assert named.failed == (None if dry_run else "2 could not be made due.")
    assert named.value["skipped"] == {}
    assert named.value["refused" if dry_run else "failed"] == nothing | {"rsv_4": "unknown submission"}


CSV = """\ufeffrequestId,decision,pmsReservationId,reason
rsv_1,confirmed, 4711 ,
rsv_2,not_made,,
rsv_3,rejected,,"sold out, they say"
"""
LINES = """
{"requestId": "rsv_1", "decision": "confirmed", "pmsReservationId": "4711"}

{"requestId": "rsv_2", "decision": "not_made"}
{"requestId": "rsv_3", "decision": "rejected", "reason": "sold out, they say"}
"""


@pytest.mark.parametrize("text", [CSV, LINES])
def test_a_file_says_the_same_as_csv_and_as_json(text: str) -> None:
    settlements, faults = read_settlements(text)
    assert not faults
    assert [(each.request_id, each.decision, each.pms_reservation_id, each.reason) for each in settlements] == [
        ("rsv_1", OperatorFinding.CONFIRMED, "4711", None),
        ("rsv_2", OperatorFinding.NOT_MADE, None, None),
        ("rsv_3", OperatorFinding.REJECTED, None, "sold out, they say"),
    ]


@for_each(
    ("text", "line", "says"),
    [
        ("requestId,decision\nrsv_1,confirmed\n", 2, "pmsReservationId"),
        ("requestId,decision\nrsv_1,perhaps\n", 2, "decision"),
        ("requestId,decision\nrsv_1\n", 2, "header"),
        ("requestId,decision,pmsId\nrsv_1,confirmed,7\n", 2, "pmsId"),
        ("requestId,decision\nrsv_1,not_made\nrsv_1,not_made\n", 3, "line 2"),
        ('{"requestId": "rsv_1", "decision": "rejected"}\n', 1, "reason"),
        ('{"requestId": "rsv_1"}\nnonsense\n', 2, "not JSON"),
        ('{"requestId": "rsv_1", "decision": "not_made"}\n["rsv_2"]\n', 2, "dictionary"),
    ],
)
def test_a_fault_names_its_line(text: str, line: int, says: str) -> None:
    _, faults = read_settlements(text)
    number, said = faults[-1]
    assert number == line
    assert says in said


def test_one_settlement_needs_what_its_decision_needs() -> None:
    with pytest.raises(ValueError, match="reason"):
        Settlement.model_validate({"requestId": "rsv_1", "decision": "rejected"})


async def test_one_that_cannot_be_repaired_does_not_stop_the_others_and_an_outage_does() -> None:
    done: list[int] = []

    async def repair(numbers: Sequence[int]) -> int:
        (number,) = numbers
        match number:
            case 2:
                raise Failed("not this one")
            case 5:
                raise StoreUnavailable("away")
        done.append(number)
        return number != 3

    async def run(numbers: Sequence[int]) -> tuple[int, int, dict[str, str], int, str | None]:
        outcome = await run_each(numbers, str, repair, stop=asyncio.Event())
        return outcome.done, outcome.already, outcome.failed, outcome.left, outcome.outage

    assert await run(range(1, 8)) == (2, 1, {"2": "not this one"}, 3, "away")
    assert done == [1, 3, 4]
    stopped = asyncio.Event()
    stopped.set()
    assert (await run_each([1, 2], str, repair, stop=stopped)).left == 2
