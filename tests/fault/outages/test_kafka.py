"""Kafka taken away under load: what was accepted was on the log before, and what was not accepted was told so."""

import asyncio
from typing import Final

import pytest

from tests.fault.campaign.case import Case
from tests.support.deployment.deployment import PATIENCE_SECONDS
from tools.servers.kafka.process import KafkaCluster

_LOOK_SECONDS: Final = 0.1


@pytest.mark.slow  # the next one kills it as well, and looks at more
async def test_kafka_killed_and_brought_back(case: Case, kafka: KafkaCluster) -> None:
    async with case.load():
        for _ in range(case.times(short=1, long=10)):
            await case.made_more(case.some(50, 300))
            await case.hit("kill -9 of the broker", kafka.kill)
            await case.wait(kafka.start)
    await case.verdict()


async def test_intake_says_of_each_outage_when_it_begins_and_ends(case: Case, kafka: KafkaCluster) -> None:
    """And is not ready meanwhile; it reads again once the group has given up the member that it lost."""
    async with case.load():
        said = {event: await _times(case, event) for event in ("intake.interrupted", "intake.resumed")}
        for outages in range(1, case.times(short=1, long=5) + 1):
            await case.made_more(case.some(20, 60))
            await case.hit("kill -9 of the broker until intake says so", kafka.kill)
            await _told(case, "intake.interrupted", said["intake.interrupted"] + outages)
            assert not await _ready(case)
            await case.wait(kafka.start)
            await _told(case, "intake.resumed", said["intake.resumed"] + outages)
            assert await _ready(case)
    await case.verdict()


async def _told(case: Case, event: str, times: int) -> None:
    """Return when the worker has logged it so often."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _times(case, event) < times:
            await asyncio.sleep(_LOOK_SECONDS)


async def _times(case: Case, event: str) -> int:
    lines = await asyncio.to_thread(case.deployment.log("worker").read_text)
    return lines.count(event)


async def _ready(case: Case) -> bool:
    answer = await case.deployment.client.get(f"{case.deployment.url('worker')}/readyz")
    return bool(answer.json()["checks"]["consuming"])
