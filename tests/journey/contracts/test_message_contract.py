"""The messages of a run are as published: requests, results and dead letters; and so is every answer on the way."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from forwarder.assembly.backend import open_log
from forwarder.settings import Distributed, Embedded
from forwarder.topics.port import Message, Topics, read_to_end
from tests.support.backends import slow_on
from tests.support.contracts.http_contract import HttpContract
from tests.support.contracts.message_contract import check_dead_letter, check_message
from tests.support.deployment.deployment import Deployment, Site, booking, deploy

WAIT = {"Prefer": "wait=20"}


@pytest.fixture
async def running(site: Site) -> AsyncIterator[Deployment]:
    """A forwarder of which every answer is held against the contract."""
    async with deploy(site) as deployment:
        await deployment.add_account("generic")
        deployment.client.event_hooks = {"response": [_Held()]}
        yield deployment


class _Held:
    """A hook that holds the service's answers, and not the simulator's, against the contract."""

    def __init__(self) -> None:
        self._contract = HttpContract()

    async def __call__(self, response: httpx.Response) -> None:
        if response.request.url.path.startswith("/api/"):
            await self._contract.holds(response)


async def _messages(site: Site, topic: str) -> Sequence[Message]:
    settings = site.settings
    bootstrap, database = settings.get("FORWARDER_KAFKA_BOOTSTRAP_SERVERS"), settings.get("FORWARDER_DATABASE_URL")
    data_dir = site.directory / "data"
    where = Distributed(bootstrap, database) if bootstrap and database else Embedded(data_dir)
    async with open_log(where, partitions=int(settings["FORWARDER_PARTITIONS"])) as log:
        return [delivery.message async for batch in read_to_end(log, topic) for delivery in batch]


async def _cancel(deployment: Deployment, request_id: str) -> int:
    path = f"{deployment.url('ingress')}/api/v1/vrs/reservations/{request_id}/cancel"
    answer = await deployment.client.post(path, headers=deployment.headers("generic", **WAIT), json={"reason": "ill"})
    return answer.status_code


@slow_on("embedded")
async def test_the_messages_of_a_run_are_as_published(running: Deployment, site: Site) -> None:
    confirmed = await running.submit("generic", booking(1), **WAIT)
    assert confirmed.status_code == 201
    rejected = await running.submit("generic", booking(2, propertyId="unknown"), **WAIT)
    assert rejected.status_code == 409
    assert await _cancel(running, confirmed.json()["data"]["requestId"]) == 200
    await running.client.put(f"{running.url('simulate')}/generic/faults", json={"mode": "down"})
    failed = await running.submit("generic", booking(3), **{"Forward-Deadline": "2"})
    ended = await running.settled("generic", failed.json()["data"]["requestId"])
    assert ended["status"] == "FAILED"

    topics = Topics(site.settings.get("FORWARDER_TOPIC_PREFIX", ""))
    kinds = Counter(
        [
            check_message(message)
            for topic in (topics.requests, topics.results)
            for message in await _messages(site, topic)
        ]
    )
    assert kinds == {
        "reservation.submitted.v1": 3,
        "reservation.cancellation_requested.v1": 1,
        "reservation.confirmed.v1": 1,
        "reservation.cancelled.v1": 1,
        "reservation.rejected.v1": 1,
        "reservation.failed.v1": 1,
    }
    letters = await _messages(site, topics.dead_letters)
    assert len(letters) == 1
    for letter in letters:
        check_dead_letter(letter)
