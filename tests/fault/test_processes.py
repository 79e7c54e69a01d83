"""Our own processes killed at random moments, and workers that come and go: nothing hangs on any one of them."""

import asyncio
import os
import signal
import time

import pytest

from tests.fault.campaign.case import Case
from tests.fault.campaign.judge import Expected
from tests.support.deployment.warm import children
from tools.servers.server_process import ServerProcess


@pytest.mark.parametrize(
    "role",
    [
        "ingress",
        pytest.param("worker", marks=pytest.mark.slow),  # for a change, one of those that join below is killed
        pytest.param("query", marks=pytest.mark.slow),
    ],
)
async def test_killed(case: Case, role: str) -> None:
    async with case.load():
        for _ in range(case.times(short=1, long=20)):
            await case.made_more(case.some(20, 200))
            await case.kill(role)
    await case.verdict(Expected(all_accepted=role != "ingress"))


@pytest.mark.slow  # the only one of an ingress killed is the harder case
async def test_one_of_two_on_a_port_killed(case: Case) -> None:
    """What waited in its queue goes with it, unanswered; the other goes on, and a new one comes."""
    several = case.deployment.add("ingress", "--processes", "2", role="two ingress processes")
    await case.wait(several.start)
    async with case.load(role="two ingress processes"):
        for _ in range(case.times(short=2, long=20)):
            await case.made_more(case.some(20, 200))
            await case.hit("kill -9 of one of two ingress", lambda: _kill_the_eldest_child(several))
    await case.verdict(Expected())


def _kill_the_eldest_child(parent: ServerProcess) -> None:
    while not (living := children(parent.pid)):  # both were killed, one soon after the other
        time.sleep(0.05)
    os.kill(living[0], signal.SIGKILL)


async def test_workers_that_join_and_leave_every_second(case: Case) -> None:
    """One leaves as it should, the next one is killed; each change of the group is a rebalance."""
    roles = [f"passing worker {number}" for number in (1, 2)]
    passing = [case.deployment.add("worker", role=role) for role in roles]
    async with case.load():
        first = case.draw(0, 1)
        for turn in range(case.times(short=2, long=20)):
            worker = passing[turn % len(passing)]
            case.injected("worker joined")
            await case.wait(worker.start)
            await asyncio.sleep(case.random.uniform(0.2, 1.0))  # how long it stays
            if (first + turn) % 2:
                await case.hit("worker left", worker.stop)
            else:
                await case.hit("kill -9 of worker", worker.kill)
    await case.verdict(Expected(all_accepted=True))
