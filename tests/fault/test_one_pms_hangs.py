"""One account's PMS hangs for the whole run: the others' reservations are made all the same, and the run says how fast."""

from datetime import datetime
from statistics import quantiles

import pytest

from tests.fault.campaign.case import Case
from tests.fault.campaign.form import Form
from tests.fault.campaign.judge import Expected
from tests.fault.campaign.reading import whole
from tests.fault.campaign.service import Service
from tests.fault.conftest import NewCase

_RATE = 200.0
_SENT = {"short": 120, "long": 1_200}
_MADE = {"short": 50, "long": 400}


@pytest.mark.slow  # `tests/contract/pms/test_pms.py` shows it of each adapter
async def test_one_pms_hangs_and_the_others_go_on(shared_service: Service, new_case: NewCase, form: Form) -> None:
    await shared_service.mend()
    sent, made = _SENT[form.length], _MADE[form.length]
    well, hit = new_case(shared_service), new_case(shared_service)
    async with well.load(rate=_RATE) as load:
        well.injected("none, to compare with")
        await load.sent_more(sent)
        before = await _p99_of_the_others(well, made)
    await well.verdict(Expected(all_accepted=True))
    hanging = next(iter(hit.accounts))
    async with hit.load(rate=_RATE) as load:
        await hit.order_faults(hanging, mode="hang")
        await load.sent_more(sent)
        await hit.made_more(made)  # by the others alone
        during = await _p99_of_the_others(hit, made)
        await hit.lift_faults(hanging)
    hit.note(f"99th percentile of the others, from intake to outcome: {during:.3f} s, {during / before:.2f} of before")
    await hit.verdict(Expected(all_accepted=True))


async def _p99_of_the_others(case: Case, at_least: int) -> float:
    """Seconds from being taken in to the outcome, of all accounts but the first."""
    _, *others = case.accounts
    records = [record for account in others for record in await whole(case.deployment, account)]
    times = [(record["createdAt"], record["updatedAt"]) for record in records if record["status"] != "PENDING"]
    seconds = [(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() for start, end in times]
    assert len(seconds) > at_least
    return quantiles(seconds, n=100)[98]
