"""Webhooks end to end: results arrive signed, a dead endpoint delays nobody, a killed notifier loses nothing, 410 is the end."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from tests.support.backends import Backend, slow_on
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, booking, deploy
from tests.support.network.receiver import Receiver, receiver

CARD = "4111111111111111"
SETTINGS = {"FORWARDER_WEBHOOK_TIMEOUT_SECONDS": "2"}
INSIDE = {"FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}


@pytest.fixture
async def posting(site: Site, backend: Backend) -> AsyncIterator[Deployment]:
    """A running forwarder that gives endpoints little time, and may post to this machine."""
    more = SETTINGS if backend == "embedded" else SETTINGS | INSIDE
    async with deploy(replace(site, settings={**site.settings, **more})) as running:
        if backend == "distributed":
            running.add("notifier")
            await running.start()
        await running.add_account("generic")
        yield running


@slow_on("embedded")
async def test_results_reach_the_endpoints_that_are_there(posting: Deployment) -> None:
    async with AsyncExitStack() as stack:
        good = await stack.enter_async_context(receiver())
        dead = await stack.enter_async_context(receiver(answering=False))
        gone = await stack.enter_async_context(receiver(status=410))
        hooks = await asyncio.gather(*(add(posting, each) for each in (good, dead, gone)))

        first = await submit(posting, range(20))
        await good.has_answered(*first)
        assert dead.answered == []  # it holds all that was posted to it, and nobody waited for it
        assert dead.begun
        verify(good, hooks[0]["secret"], first)
        assert (await shown(posting, hooks[2], enabled=False))["disabledReason"] == "gone"

        good.answering.clear()
        second = await submit(posting, range(20, 25))
        await asyncio.gather(*(posting.settled("generic", each.removesuffix(".1")) for each in second))
        await good.has_begun_any(second)
        role = "notifier" if "notifier" in posting.processes else "up"
        posting.processes[role].kill()
        good.begun.clear()
        good.answering.set()
        await posting.start()
        await good.has_begun(*second)  # by the next one, also what the killed one had begun
        await good.has_answered(*second)
        verify(good, hooks[0]["secret"], first | second)

        await posting.command("webhook", "test", hooks[0]["id"])
        await good.has_begun_one("test_")
        assert not [one for one in (*dead.begun, *gone.begun) if one.id.startswith("test_")]
    await posting.stop()
    assert secrets_in_logs(posting, hooks) == []


async def add(posting: Deployment, endpoint: Receiver) -> dict[str, Any]:
    """A new webhook: its id and its secret."""
    answer = await posting.client.post(
        hooks_url(posting), json={"url": endpoint.url}, headers=posting.headers("generic")
    )
    assert answer.status_code == 201, answer.text
    hook: dict[str, Any] = answer.json()["data"]
    return hook


def hooks_url(posting: Deployment) -> str:
    return f"{posting.url('notifier')}/api/v1/vrs/webhooks"


async def submit(posting: Deployment, numbers: range) -> set[str]:
    """The ids of the events that the outcomes are announced by."""
    bodies = [booking(number, cardDetails=card()) for number in numbers]
    answers = await asyncio.gather(*(posting.submit("generic", body) for body in bodies))
    assert {answer.status_code for answer in answers} == {202}
    return {f"{answer.json()['data']['requestId']}.1" for answer in answers}


def card() -> dict[str, str]:
    return {"cardNumber": CARD, "expirationMonth": "12", "expirationYear": "2030", "cvv": "123", "cardHolder": "M G"}


async def shown(posting: Deployment, hook: dict[str, Any], *, enabled: bool) -> dict[str, Any]:
    """The webhook, once it is enabled or not."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await posting.client.get(f"{hooks_url(posting)}/{hook['id']}", headers=posting.headers("generic"))
            told: dict[str, Any] = answer.json()["data"]
            if told["enabled"] is enabled:
                return told
            await asyncio.sleep(0.05)


def verify(endpoint: Receiver, secret: str, ids: set[str]) -> None:
    """Each event came, signed, and with no card."""
    judge = Webhook(secret)
    events = {one.id: judge.verify(one.body, dict(one.headers)) for one in endpoint.answered}
    assert set(events) == ids
    for event_id, event in events.items():
        assert event["type"] == "reservation.confirmed.v1"
        assert event["data"]["requestId"] == event_id.removesuffix(".1")
        assert CARD not in json.dumps(event)


def secrets_in_logs(posting: Deployment, hooks: Sequence[dict[str, Any]]) -> list[str]:
    """The secrets that any process wrote down."""
    written = "".join(log.read_text() for log in posting.site.directory.glob("*.log"))
    return [hook["secret"] for hook in hooks if hook["secret"].removeprefix("whsec_") in written]
