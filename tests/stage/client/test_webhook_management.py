"""Webhooks managed through the client, against the stages themselves; and which of it may be made again."""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, get_args

import httpx
import pytest

from forwarder.reservation.record import RESULT_TYPES
from reservation_forwarder_client import (
    AsyncWebhooks,
    Conflict,
    EventType,
    ForwarderClient,
    NewWebhook,
    NotFound,
    Refused,
    RetryPolicy,
    Unavailable,
    Unexpected,
    WebhookChange,
    WebhookWithSecret,
)
from reservation_forwarder_client.wire import camel_case
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.stages.client_of_stages import client_of
from tests.support.stages.http_stages import Stages, stages
from tests.support.stages.scripted_service import ScriptedService, Step, problem
from tests.support.stages.webhook_stages import URL, deliveries
from tools.contracts.answers import webhook_examples
from tools.contracts.openapi import openapi

EXAMPLES = webhook_examples()
ADDED = httpx.Response(201, json=EXAMPLES["webhookAdded"])
ONE = httpx.Response(200, json=EXAMPLES["webhook"])
PAGE = httpx.Response(200, json=EXAMPLES["webhookPage"])
QUEUED = httpx.Response(202, json=EXAMPLES["webhookTestQueued"])
DELIVERY = httpx.Response(202, json=EXAMPLES["webhookDelivery"])


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


@pytest.fixture
async def webhooks(house: Stages) -> AsyncIterator[AsyncWebhooks]:
    async with client_of(house) as client:
        yield client.webhooks


async def test_one_is_added_changed_rotated_and_removed(webhooks: AsyncWebhooks, house: Stages) -> None:
    added = await webhooks.add(URL, types=["reservation.confirmed.v1"], description="bookings")
    webhook = added.webhook
    assert added.secret.startswith("whsec_")
    assert added.secret not in repr(added)
    assert (webhook.url, webhook.types, webhook.description) == (URL, ("reservation.confirmed.v1",), "bookings")
    assert (webhook.enabled, webhook.created_at) == (True, house.clock.now())
    assert await webhooks.get(webhook.id) == webhook

    more: WebhookChange = {"integration_account_ids": ["alpha-1"], "property_ids": [7], "headers": {"X-Key": "a"}}
    more["asymmetric_signature"] = True
    chosen = await webhooks.change(webhook.id, **more)
    assert (chosen.integration_account_ids, chosen.property_ids) == (("alpha-1",), ("7",))
    assert (chosen.header_names, chosen.asymmetric_signature) == (("X-Key",), True)
    more = {"integration_account_ids": None, "property_ids": None, "headers": {}, "asymmetric_signature": False}
    assert await webhooks.change(webhook.id, **more) == webhook
    changed = await webhooks.change(webhook.id, types=None)
    assert (changed.types, changed.description) == (None, "bookings")
    disabled = await webhooks.change(webhook.id, enabled=False)
    assert (disabled.enabled, disabled.disabled_reason, disabled.disabled_at) == (False, "by_hand", house.clock.now())
    with pytest.raises(Conflict):
        await webhooks.test(webhook.id)
    assert (await webhooks.change(webhook.id, enabled=True)).disabled_at is None

    rotated = await webhooks.rotate(webhook.id, overlap_seconds=60)
    assert rotated.secret != added.secret
    assert rotated.webhook.previous_secret_until is not None
    assert (rotated.webhook.previous_secret_until - house.clock.now()).total_seconds() == 60

    await webhooks.remove(webhook.id)
    for call in (webhooks.get, webhooks.test, webhooks.remove):
        with pytest.raises(NotFound):
            await call(webhook.id)


async def test_what_may_not_be_posted_to_is_refused_with_its_pointer(webhooks: AsyncWebhooks) -> None:
    with pytest.raises(Refused) as raised:
        await webhooks.add("http://127.0.0.1/in")
    assert [fault.pointer for fault in raised.value.problem.errors] == ["/url"]


async def test_lists_follow_their_pages(webhooks: AsyncWebhooks, house: Stages) -> None:
    made: list[WebhookWithSecret] = []
    for _ in range(3):
        await house.clock.advance(1)
        made.append(await webhooks.add(URL))
    assert [one.id async for one in webhooks.list(page_size=2)] == [one.webhook.id for one in made]
    webhook_id = made[0].webhook.id
    await deliveries(house, webhook_id, 5, failed=1)
    every = [one async for one in webhooks.deliveries(webhook_id, page_size=2)]
    assert [one.id for one in every] == [5, 4, 3, 2, 1]
    (failed,) = [one async for one in webhooks.deliveries(webhook_id, status="FAILED")]
    assert failed == every[-1] == await webhooks.delivery(webhook_id, failed.id)
    assert [(one.status, one.failure) for one in failed.attempts] == [(503, None)]
    again = await webhooks.resend(webhook_id, failed.id)
    assert (again.status, again.due_at) == ("PENDING", house.clock.now())
    tested = await webhooks.delivery(webhook_id, await webhooks.test(webhook_id))
    assert tested.type == "webhook.test.v1"


Call = Callable[[AsyncWebhooks], Coroutine[Any, Any, object]]


async def _listed(webhooks: AsyncWebhooks) -> object:
    return [one async for one in webhooks.list()]


@for_each(
    ("call", "answer"),
    [
        (lambda webhooks: webhooks.get("whk_a"), ONE),
        (lambda webhooks: webhooks.change("whk_a", enabled=False), ONE),
        (lambda webhooks: webhooks.remove("whk_a"), httpx.Response(200, json=EXAMPLES["webhookRemoved"])),
        (lambda webhooks: webhooks.resend("whk_a", 1), DELIVERY),
        (_listed, PAGE),
    ],
)
async def test_what_does_the_same_twice_is_made_again(call: Call, answer: Step) -> None:
    service = ScriptedService(ManualClock(), httpx.ReadError("reset"), answer)
    async with service.client(RetryPolicy(first_seconds=0)) as client:
        await call(client.webhooks)
    assert len(service.requests) == 2
    assert "integrationaccountid" not in service.requests[0].headers


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda webhooks: webhooks.add(URL), ADDED),
        (lambda webhooks: webhooks.rotate("whk_a"), ADDED),
        (lambda webhooks: webhooks.test("whk_a"), QUEUED),
    ],
)
async def test_what_would_act_twice_is_made_again_only_if_it_surely_did_nothing(call: Call, answer: Step) -> None:
    for trouble in (httpx.ReadError("reset"), problem(503, "tenancy_unavailable"), httpx.Response(504)):
        service = ScriptedService(ManualClock(), trouble, answer)
        async with service.client() as client:
            with pytest.raises(Unavailable):
                await call(client.webhooks)
        assert len(service.requests) == 1
    service = ScriptedService(ManualClock(), problem(429, "rate_limited"), answer)
    async with service.client(RetryPolicy(first_seconds=0)) as client:
        await call(client.webhooks)
    assert len(service.requests) == 2


@pytest.mark.parametrize("members", [{}, {"data": {}}, {"data": []}, {"data": [3], "meta": {"cursors": {"next": ""}}}])
async def test_what_is_not_of_the_contract_is_told(members: Any) -> None:
    service = ScriptedService(ManualClock(), httpx.Response(200, json=members))
    async with service.client() as client:
        with pytest.raises(Unexpected):
            await client.webhooks.get("whk_a")
        with pytest.raises(Unexpected):
            await _listed(client.webhooks)


def test_the_client_that_blocks_takes_the_same_steps() -> None:
    examples = [ADDED, PAGE, ONE, ONE, ADDED, QUEUED, httpx.Response(200, json=EXAMPLES["webhookDeliveryPage"])]
    answers = iter([*examples, DELIVERY, DELIVERY, httpx.Response(200, json=EXAMPLES["webhookRemoved"])])
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path.removeprefix("/api/v1/vrs/webhooks")))
        return next(answers)

    with ForwarderClient(
        "http://forwarder.test", token="t", workspace="w", account="a", transport=httpx.MockTransport(answer)
    ) as client:
        webhooks = client.for_account("b").webhooks
        added = webhooks.add(URL, types=["reservation.failed.v1"])
        assert added.webhook in [*webhooks.list(), webhooks.get("a b")]
        webhooks.change("c", description="another")
        assert webhooks.rotate("d").secret == added.secret
        assert webhooks.test("e") == EXAMPLES["webhookTestQueued"]["data"]["deliveryId"]
        (first, *_) = webhooks.deliveries("f", status="FAILED")
        assert webhooks.delivery("f", first.id) == webhooks.resend("f", first.id)
        webhooks.remove("g")
    one = f"/f/deliveries/{first.id}"
    assert asked == [
        ("POST", ""),
        ("GET", ""),
        ("GET", "/a b"),
        ("PATCH", "/c"),
        ("POST", "/d/rotate"),
        ("POST", "/e/test"),
        ("GET", "/f/deliveries"),
        ("GET", one),
        ("POST", f"{one}/resend"),
        ("DELETE", "/g"),
    ]


def test_its_types_are_those_of_the_contract() -> None:
    assert get_args(EventType) == RESULT_TYPES
    schemas = openapi()["components"]["schemas"]
    assert camel_case(WebhookChange.__annotations__).keys() == schemas["WebhookChange"]["properties"].keys()
    assert camel_case({**NewWebhook.__annotations__, "url": str}).keys() == schemas["NewWebhook"]["properties"].keys()
