"""More than can be published, and more than can be stored: the ingress sends callers away before its memory grows, the worker's
consumer pauses, and what was accepted is made once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx
import pytest

from tests.fault.campaign.case import Case
from tests.fault.campaign.flood import Flood
from tests.fault.campaign.service import measured
from tools.servers.kafka.process import KafkaCluster
from tools.servers.process_memory import peak_megabytes

_CALLERS = {"short": 700, "long": 2_200}
_CALLERS_OF_A_LOCKED_STORE = {"short": 300, "long": 1_000}
_MAX_MEGABYTES = {"short": 250, "long": 400}
_ONE_IN_KEYED = 10
_RATE = 60.0
"""Of those who come beside the flood."""
_TAKEN_IN = 'forwarder_taken_in_total{result="taken_in"}'


async def test_more_than_can_be_published(case: Case, kafka: KafkaCluster) -> None:
    """Kafka stands still, and thousands come at once with bodies as long as they may be."""
    ingress = case.deployment.processes["ingress"]
    (broker,) = kafka.brokers
    await case.wait(ingress.restart)  # what it had in memory before is forgotten
    callers = case.times(**_CALLERS)
    async with case.load(rate=_RATE) as load:
        for turn in range(case.times(short=1, long=5)):
            flood = Flood(case.deployment, load, case.accounts, earlier=turn * callers)
            await case.hit("Kafka stopped, and a flood", broker.pause)
            rising = asyncio.create_task(flood.rise(callers))
            await flood.until(lambda flood: len(flood.refusals) >= callers // 2)
            assert _refused(flood)["overloaded"] > 0
            await case.wait(broker.resume)
            await rising
            assert _refused(flood).keys() <= {"overloaded", "log_unavailable"}
    await case.verdict()
    _assert_small(case, "ingress")


@pytest.mark.slow  # for a change, more than can be published is enough
async def test_more_than_can_be_stored(case: Case) -> None:
    """The store answers nothing for a while. What needs no look-up is accepted; the worker leaves it on the log meanwhile."""
    await case.wait(case.deployment.processes["worker"].restart)
    callers = case.times(**_CALLERS_OF_A_LOCKED_STORE)
    async with case.load(rate=_RATE) as load:
        for turn in range(case.times(short=1, long=5)):
            flood = Flood(case.deployment, load, case.accounts, earlier=turn * callers)
            case.injected("the store locked, and a flood")
            async with _locked(case):
                rising = asyncio.create_task(flood.rise(callers, one_in_keyed=_ONE_IN_KEYED))
                await flood.until(lambda flood: flood.accepted > 0)
                before = await measured(case.deployment, "worker", _TAKEN_IN)
                # Those without a key wait for no store. How many of them there is room for depends on how fast they come.
                await flood.until(lambda flood: flood.answered >= callers - callers // _ONE_IN_KEYED)
                assert await measured(case.deployment, "worker", _TAKEN_IN) == before
            await rising
            assert _refused(flood).keys() <= {"overloaded", "log_unavailable", "store_unavailable"}
    await case.verdict()
    _assert_small(case, "worker")


def _refused(flood: Flood) -> Counter[str]:
    """Why callers were sent away. Each of them was told when to come again."""
    assert all(answer.status_code == httpx.codes.SERVICE_UNAVAILABLE for answer in flood.refusals)
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in flood.refusals)
    return Counter(answer.json()["code"] for answer in flood.refusals)


def _assert_small(case: Case, role: str) -> None:
    megabytes = peak_megabytes(case.deployment.processes[role].pid)
    case.note(f"the {role} had {megabytes:.0f} MB in memory at the most")
    assert megabytes < case.times(**_MAX_MEGABYTES)


@asynccontextmanager
async def _locked(case: Case) -> AsyncIterator[None]:
    """Nobody else reads or writes a reservation."""
    url = case.deployment.site.settings["FORWARDER_DATABASE_URL"]
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        async with connection.transaction():
            await connection.execute("lock table reservations in access exclusive mode")
            yield
    finally:
        await connection.close()
