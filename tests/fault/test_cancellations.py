"""A third of everything is cancelled once it is accepted, while workers are killed: none of it stays booked, or is booked later."""

import pytest

from tests.fault.campaign.cancelling import Cancelling
from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected

ENDED = Expected(statuses=frozenset({"CONFIRMED", "CANCELLED"}), all_accepted=True)


@pytest.mark.slow  # `test_exploration.py` and the state machine cancel while workers die
async def test_cancelled_at_once_while_the_worker_is_killed(case: Case) -> None:
    cancelling = Cancelling(case.deployment)
    async with case.load(then=cancelling):
        for _ in range(case.times(short=1, long=20)):
            await case.made_more(case.some(20, 150))
            await case.kill("worker")
    await cancelling.all_carried_out()
    evidence = await case.verdict(ENDED)
    assert cancelling.answers <= {200, 202, 503}
    asked = {request_id for each in cancelling.asked.values() for request_id in each}
    held = {reference for account in case.accounts for reference in case.service.bookings.held(account)}
    statuses = evidence.statuses
    assert {request_id for request_id, status in statuses.items() if status == "CANCELLED"} == asked
    assert {request_id for request_id, status in statuses.items() if status == "CONFIRMED"} == held
    assert len(asked) >= len(statuses) // 4
    unsent = asked - evidence.made.keys()
    case.note(
        f"of {len(asked)} that were cancelled at once {len(unsent)} were never sent, the others made and cancelled"
    )
    assert len(unsent) < len(asked)
