"""A worker stopped for longer than its lease, while it holds rows, and let go on: it neither pushes nor records what it lost."""

import asyncio

import pytest

from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected
from tests.support.deployment.deployment import PATIENCE_SECONDS

_PAST_ITS_LEASE = 1.2
_RATES = {"short": 30, "long": 60}
"""Submissions a second. For seconds nothing is pushed: hundreds of rows wait afterwards all the same."""


@pytest.mark.slow  # where another takes its rows over, there is more to lose
async def test_the_only_worker_stopped_past_its_lease(case: Case) -> None:
    """Nobody takes its rows over meanwhile: it gives back what it could not push, and goes on."""
    worker = case.deployment.processes["worker"]
    lease_seconds = float(case.deployment.site.settings["FORWARDER_LEASE_SECONDS"])
    async with case.load(rate=case.times(**_RATES)):
        for _ in range(case.times(short=1, long=10)):
            await case.made_more(case.some(20, 100))
            await case.hit("worker stopped past its lease", worker.pause)
            await asyncio.sleep(lease_seconds * _PAST_ITS_LEASE)  # the fault's own length
            await case.wait(worker.resume)
    await case.verdict(Expected(all_accepted=True))


async def test_a_worker_stopped_until_another_has_its_rows(case: Case) -> None:
    """It wakes up with rows in memory that are another's by now. Then the other one is stopped, and so on."""
    awake, asleep = "worker", "second worker"
    case.deployment.add("worker", role=asleep)
    async with case.load(rate=case.times(**_RATES)):
        for _ in range(case.times(short=1, long=10)):
            await case.made_more(case.some(20, 100))
            (holder,) = await case.service.leases(1)
            await case.hit("worker stopped until another had its rows", case.deployment.processes[awake].pause)
            await case.wait(case.deployment.processes[asleep].start)
            await _until_forgotten(case, holder)
            await case.wait(case.deployment.processes[awake].resume)
            await case.wait(case.deployment.processes[awake].stop)
            awake, asleep = asleep, awake
    await case.verdict(Expected(all_accepted=True))


async def _until_forgotten(case: Case, worker_id: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while worker_id in await case.service.holders():
            await asyncio.sleep(0.1)
