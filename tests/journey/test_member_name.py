"""A worker that has a name leaves its partitions when it stops; killed and started again, it goes on at once, and does not wait for
its own session to end."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.support.backends import only
from tests.support.deployment.deployment import Deployment, booking

LONGER_THAN_ANY_TEST_WAITS = 300


@only("distributed")
async def test_who_stops_leaves_its_partitions_to_others_and_who_is_killed_has_them_again(
    deployment: Deployment,
) -> None:
    await deployment.add_account("alpha")
    await deployment.drop("worker")
    await _each_leaves_them_to_the_next(deployment)
    await _killed_it_has_them_again(deployment)


async def _killed_it_has_them_again(deployment: Deployment) -> None:
    session = str(LONGER_THAN_ANY_TEST_WAITS)
    deployment.own = {"worker": {"FORWARDER_MEMBER_NAME": "{hostname}-1", "FORWARDER_SESSION_SECONDS": session}}
    worker = deployment.add("worker")
    for number in range(3):
        await deployment.start()
        await confirmed(deployment, booking(number))
        await asyncio.to_thread(worker.kill)


async def _each_leaves_them_to_the_next(deployment: Deployment) -> None:
    for name in ("first", "second"):
        own = {"FORWARDER_MEMBER_NAME": name, "FORWARDER_SESSION_SECONDS": str(LONGER_THAN_ANY_TEST_WAITS)}
        deployment.own = {"worker": own}
        deployment.add("worker", role=name)
        await deployment.start()
        await confirmed(deployment, booking(len(name)))
        await deployment.drop(name)


async def confirmed(deployment: Deployment, body: Mapping[str, Any]) -> None:
    answer = await deployment.submit("alpha", body)
    settled = await deployment.settled("alpha", answer.json()["data"]["requestId"])
    assert settled["status"] == "CONFIRMED"
