"""The stages in memory, with a client that takes no answer that the published HTTP contract does not have."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.contracts.http_contract import HttpContract
from tests.support.stages.bodies import BOOKING_ENGINE
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, Stages, stages

CONTRACT = HttpContract()


@asynccontextmanager
async def contract_stages() -> AsyncIterator[Stages]:
    async with stages() as built:
        built.client.event_hooks = {"response": [CONTRACT.holds]}
        yield built


async def accepted(house: Stages) -> str:
    """Where the status of a submission is read that was just accepted."""
    answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)
    return f"/api/v1/vrs/submissions/{answer.json()['data']['requestId']}"
