"""The notifier: who is sent what, what an endpoint's answers lead to, and that a dead endpoint is nobody else's trouble."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from standardwebhooks.webhooks import Webhook
from structlog.testing import capture_logs

from forwarder.notifier.posting import NotifierSettings
from forwarder.notifier.service import EndpointDispatcher
from forwarder.notifier.webhooks import EndpointDisabled, HeadersNeeded, UnknownType, WebhookTerms
from forwarder.observability.metrics import registry
from forwarder.store.deliveries import DeliveryStatus
from forwarder.tenancy.port import NotKnown
from forwarder.tenancy.sealing import of_webhook_secret
from forwarder.topics.port import ConsumedMessage, Message
from forwarder.webhooks.addresses import AddressRule, ResolvedTargets
from forwarder.webhooks.port import BadTarget, EndpointResponse, Unanswered
from tests.support.memory.clock import settle
from tests.support.sealing import keyring_of
from tests.support.stages.notifier_parts import SECRET, Hooks, url
from tools.contracts.messages import result_messages

CONFIRMED, REJECTED = result_messages()[:2]
DOWN = Unanswered("connect_failed", "nobody there")


@pytest.fixture
async def hooks() -> AsyncIterator[Hooks]:
    made = Hooks()
    yield made
    for hanging in made.sender.hanging.values():
        hanging.set()
    await made.dispatcher.finish(5)


def now_by(hooks: Hooks) -> type[datetime]:
    """What takes the time from the clock of `hooks`."""

    class Now(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(hooks.clock.now().timestamp(), tz)

    return Now


def published(example: Message, *, workspace: str = "ws-1", at: datetime, event_id: str = "rsv_1.1") -> ConsumedMessage:
    """A result event as the log delivers it."""
    value = json.dumps({**json.loads(example.value), "workspaceId": workspace}).encode()
    headers = tuple((name, event_id.encode() if name == "ce_id" else told) for name, told in example.headers)
    return ConsumedMessage(
        "reservations.results", 0, 0, int(at.timestamp() * 1000), replace(example, value=value, headers=headers)
    )


# --- who is sent what -------------------------------------------------------------------------------------------------------


async def test_an_event_goes_to_the_endpoints_of_its_workspace_that_take_it(hooks: Hooks) -> None:
    everything, failures = await hooks.add("all"), await hooks.add("failures", types=["reservation.failed.v1"])
    other = await hooks.add("other", "ws-2")
    hooks.consumer.waiting = [[published(CONFIRMED.example, at=hooks.clock.now())]]
    await hooks.intake.ingest_next(hooks.consumer)
    await settle()
    assert hooks.statuses(everything) == [DeliveryStatus.DELIVERED]
    assert hooks.statuses(failures) == hooks.statuses(other) == []
    (post,) = hooks.sender.posts
    assert post.url == url("all")
    assert json.loads(post.body)["data"]["workspaceId"] == "ws-1"


async def test_an_endpoint_gets_the_events_of_its_accounts_and_properties(hooks: Hooks) -> None:
    data = json.loads(CONFIRMED.example.value)
    account, place = data["integrationAccountId"], str(data["reservation"]["propertyId"])
    hooks.endpoints.accounts.add(account)
    selections: list[tuple[WebhookTerms, bool]] = [
        ({"account_ids": [account]}, True),
        ({"account_ids": ["acc-1"]}, False),
        ({"property_ids": ["another", place]}, True),
        ({"property_ids": ["another"]}, False),
        ({"account_ids": ["acc-1", account], "property_ids": [place]}, True),
        ({"account_ids": ["acc-1"], "property_ids": [place]}, False),
        ({"account_ids": [account], "types": ["reservation.failed.v1"]}, False),
        ({"account_ids": None, "property_ids": None}, True),
    ]
    added = [(await hooks.webhooks.add("ws-1", url("a"), **terms))[0].id for terms, _ in selections]
    shadow = replace(CONFIRMED.example, value=json.dumps({**data, "integrationAccountId": f"test~{account}"}).encode())
    events = [(CONFIRMED.example, "rsv_1.1"), (shadow, "rsv_2.1")]
    hooks.consumer.waiting = [[published(each, at=hooks.clock.now(), event_id=name) for each, name in events]]
    await hooks.intake.ingest_next(hooks.consumer)
    await settle()
    assert [len(hooks.statuses(each)) for each in added] == [2 * wanted for _, wanted in selections]


async def test_an_event_that_comes_again_is_posted_once(hooks: Hooks) -> None:
    await hooks.add("all")
    event = published(CONFIRMED.example, at=hooks.clock.now())
    hooks.consumer.waiting = [[event, event], [event]]
    for _ in range(2):
        await hooks.intake.ingest_next(hooks.consumer)
        await settle()
    assert [post.id for post in hooks.sender.posts] == ["rsv_1.1"]
    assert len(hooks.consumer.committed) == 2


async def test_an_endpoint_is_sent_nothing_from_before_it_was_added(hooks: Hooks) -> None:
    before = hooks.clock.now()
    await hooks.clock.advance(1)
    await hooks.add("all")
    old, new = (
        published(CONFIRMED.example, at=before),
        published(REJECTED.example, at=hooks.clock.now(), event_id="new"),
    )
    hooks.consumer.waiting = [[old, new]]
    await hooks.intake.ingest_next(hooks.consumer)
    await settle()
    assert [post.id for post in hooks.sender.posts] == ["new"]


async def test_what_cannot_be_read_is_passed_over(hooks: Hooks) -> None:
    await hooks.add("all")
    good = published(CONFIRMED.example, at=hooks.clock.now())
    hooks.consumer.waiting = [[replace(good, message=Message(b"k", b"{")), good]]
    await hooks.intake.ingest_next(hooks.consumer)
    await settle()
    assert len(hooks.sender.posts) == 1
    assert len(hooks.consumer.committed) == 1


FOREIGN = {
    "whose it is, with what no database takes": {"value": b'{"workspaceId":"ws-1\\u0000"}'},
    "whose it is, at length": {"value": b'{"workspaceId":"%s"}' % (b"w" * 300)},
    "what is no number in JSON": {"value": b'{"workspaceId":"ws-1","later":NaN}'},
    "nesting": {"value": b'{"workspaceId":' + b"[" * 100_000},
    "an id that fits in no index": {"headers": (("ce_id", b"i" * 3000), ("ce_type", b"t"), ("ce_time", b"1"))},
    "an id with what no database takes": {"headers": (("ce_id", b"i\0"), ("ce_type", b"t"), ("ce_time", b"1"))},
    "a type at length": {"headers": (("ce_id", b"i"), ("ce_type", b"t" * 300), ("ce_time", b"1"))},
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
async def test_what_no_worker_wrote_is_posted_to_nobody(hooks: Hooks, foreign: dict[str, Any]) -> None:
    await hooks.add("all")
    good = published(CONFIRMED.example, at=hooks.clock.now())
    hooks.consumer.waiting = [[replace(good, message=replace(good.message, **foreign)), good]]
    before = _unreadable()
    await hooks.intake.ingest_next(hooks.consumer)
    await settle()
    assert [post.id for post in hooks.sender.posts] == ["rsv_1.1"]
    assert len(hooks.consumer.committed) == 1
    assert _unreadable() == before + 1


def _unreadable() -> float:
    return registry().get_sample_value("forwarder_unreadable_results_total", {"reader": "notifier"}) or 0


async def test_what_the_store_cannot_hold_is_passed_over_alone(hooks: Hooks) -> None:
    await hooks.add("all")
    ids = [f"rsv_{number}.1" for number in range(9)]
    hooks.queue.refused = "rsv_4.1"
    hooks.consumer.waiting = [[published(CONFIRMED.example, at=hooks.clock.now(), event_id=each) for each in ids]]
    await hooks.intake.ingest_next(hooks.consumer)
    await settle()
    assert sorted(post.id for post in hooks.sender.posts) == [each for each in ids if each != "rsv_4.1"]
    assert len(hooks.consumer.committed) == 1


async def test_nothing_is_committed_before_it_is_queued(hooks: Hooks) -> None:
    await hooks.add("all")
    hooks.queue.away = True
    hooks.consumer.waiting = [[published(CONFIRMED.example, at=hooks.clock.now())]]
    taking = asyncio.create_task(hooks.intake.ingest_next(hooks.consumer))
    await settle()
    assert hooks.consumer.committed == []
    hooks.queue.away = False
    await hooks.clock.advance(5)
    await taking
    assert len(hooks.consumer.committed) == 1


async def test_where_nobody_wants_anything_batches_come_seldom(hooks: Hooks) -> None:
    hooks.consumer.waiting = [[published(CONFIRMED.example, at=hooks.clock.now())]]
    taking = asyncio.create_task(hooks.intake.ingest_next(hooks.consumer))
    await settle()
    assert hooks.consumer.committed
    assert not taking.done()
    await hooks.clock.advance(hooks.settings.idle_seconds)
    assert taking.done()


# --- what is posted ---------------------------------------------------------------------------------------------------------


async def test_a_post_is_signed_for_its_endpoint(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, secret = await hooks.webhooks.add("ws-1", url("signed"))
    await hooks.queued(endpoint.id, 1)
    await hooks.sweep()
    (post,) = hooks.sender.posts

    monkeypatch.setattr("standardwebhooks.webhooks.datetime", now_by(hooks))
    Webhook(secret).verify(post.body, dict(post.headers))
    assert post.headers["webhook-timestamp"] == str(int(hooks.clock.now().timestamp()))
    assert post.headers["content-type"] == "application/json"


async def test_both_secrets_sign_until_the_old_one_s_time_is_over(hooks: Hooks) -> None:
    endpoint, _ = await hooks.webhooks.add("ws-1", url("signed"))
    _, new = await hooks.webhooks.rotate(endpoint.id, workspace_id="ws-1", overlap_seconds=60)
    await hooks.queued(endpoint.id, 1)
    await hooks.sweep()
    await hooks.clock.advance(60)
    await hooks.queued(endpoint.id, 2)
    await hooks.sweep()
    _, newest = await hooks.webhooks.rotate(endpoint.id, workspace_id="ws-1", overlap_seconds=0)
    await hooks.queued(endpoint.id, 3)
    await hooks.sweep()
    assert [post.headers["webhook-signature"].count("v1,") for post in hooks.sender.posts] == [2, 1, 1]
    assert new != newest
    with pytest.raises(ValueError, match="604800"):
        await hooks.webhooks.rotate(endpoint.id, workspace_id="ws-1", overlap_seconds=604801)


async def test_a_second_rotation_takes_no_time_from_the_first_secret(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, first = await hooks.webhooks.add("ws-1", url("signed"))
    _, second = await hooks.webhooks.rotate(endpoint.id, workspace_id="ws-1", overlap_seconds=100)
    await hooks.clock.advance(60)
    rotated, third = await hooks.webhooks.rotate(endpoint.id, workspace_id="ws-1", overlap_seconds=30)
    assert rotated.previous_until == hooks.clock.now() + timedelta(seconds=40)
    monkeypatch.setattr("standardwebhooks.webhooks.datetime", now_by(hooks))
    for number, (seconds, signing) in enumerate([(29, (first, second, third)), (10, (first, third)), (1, (third,))]):
        await hooks.clock.advance(seconds)
        await hooks.queued(endpoint.id, number)
        await hooks.sweep()
        post = hooks.sender.posts[-1]
        assert post.headers["webhook-signature"].count("v1,") == len(signing)
        for secret in signing:
            Webhook(secret).verify(post.body, dict(post.headers))


async def test_a_customers_own_headers_are_sent_and_kept_sealed(hooks: Hooks) -> None:
    own = {"Authorization": "Basic c2VjcmV0", "X-Tenant": "7"}
    endpoint, _ = await hooks.webhooks.add("ws-1", url("a"), headers=own)
    await hooks.queued(endpoint.id, 1)
    await hooks.sweep()
    (post,) = hooks.sender.posts
    assert own.items() <= post.headers.items()
    assert post.headers["content-type"] == "application/json"
    assert "c2VjcmV0" not in repr(endpoint) + str(endpoint.headers)
    assert endpoint.header_names == ("Authorization", "X-Tenant")
    with pytest.raises(HeadersNeeded):
        await hooks.webhooks.change(endpoint.id, workspace_id="ws-1", url=url("elsewhere"))
    await hooks.webhooks.change(endpoint.id, workspace_id="ws-1", url=url("a") + "other")
    await hooks.webhooks.change(endpoint.id, workspace_id="ws-1", url=url("elsewhere"), headers={"X-Tenant": "8"})
    await hooks.queued(endpoint.id, 2)
    await hooks.sweep()
    post = hooks.sender.posts[-1]
    assert (post.url, post.headers["X-Tenant"], "Authorization" in post.headers) == (url("elsewhere"), "8", False)
    bare = await hooks.webhooks.change(endpoint.id, workspace_id="ws-1", headers={})
    assert (bare.headers, bare.header_names) == (None, None)


async def test_a_delivery_has_an_asymmetric_signature_where_one_was_asked_for(hooks: Hooks) -> None:
    endpoint, _ = await hooks.webhooks.add("ws-1", url("a"), asymmetric=True)
    await hooks.queued(endpoint.id, 1)
    await hooks.sweep()
    await hooks.webhooks.change(endpoint.id, workspace_id="ws-1", asymmetric=False)
    await hooks.queued(endpoint.id, 2)
    await hooks.sweep()
    assert ["v1a," in post.headers["webhook-signature"] for post in hooks.sender.posts] == [True, False]


# --- what an answer leads to ------------------------------------------------------------------------------------------------


async def test_what_failed_is_tried_again_and_the_log_tells_of_each_try(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("flaky")
    hooks.sender.answers[url("flaky")] = [DOWN, EndpointResponse(500, None, "oops"), EndpointResponse(204)]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    await hooks.after(4)
    assert len(hooks.sender.posts) == 1
    await hooks.after(1)
    await hooks.after(300)
    (entry,) = hooks.queue.of(endpoint_id)
    assert entry.status is DeliveryStatus.DELIVERED
    assert [(one.status, one.failure, one.detail) for one in entry.attempts] == [
        (None, "connect_failed", "nobody there"),
        (500, None, "oops"),
        (204, None, None),
    ]
    assert {post.id for post in hooks.sender.posts} == {"event-1"}


async def test_a_gone_endpoint_is_disabled_and_what_was_pending_stops(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("gone")
    hooks.sender.answers[url("gone")] = [EndpointResponse(410)]
    await hooks.queued(endpoint_id, *range(15))
    await hooks.sweep()
    await hooks.after(100)
    assert set(hooks.statuses(endpoint_id)) == {DeliveryStatus.FAILED, DeliveryStatus.STOPPED}
    known = await hooks.webhooks.get(endpoint_id, workspace_id="ws-1")
    assert (known.enabled, known.disabled_reason) == (False, "gone")
    posts = len(hooks.sender.posts)
    assert posts == hooks.settings.in_flight
    hooks.consumer.waiting = [[published(CONFIRMED.example, at=hooks.clock.now())] * hooks.settings.intake_batch]
    await hooks.intake.ingest_next(hooks.consumer)
    await hooks.after(100)
    assert len(hooks.sender.posts) == posts


@pytest.mark.parametrize(("answer", "days"), [(EndpointResponse(410), 0), (EndpointResponse(503), 2.99)])
async def test_what_an_address_refused_is_posted_to_the_one_that_replaced_it_meanwhile(
    hooks: Hooks, answer: EndpointResponse, days: float
) -> None:
    endpoint_id = await hooks.add("old")
    hooks.sender.answers[url("old")] = [answer]
    await hooks.queued(endpoint_id, 1)
    if days:
        await hooks.work(days)
    answered = hooks.sender.hanging[url("old")] = asyncio.Event()
    await hooks.work(0.02)
    await hooks.webhooks.change(endpoint_id, workspace_id="ws-1", url=url("new"))
    answered.set()
    await settle()
    await hooks.after(60)
    assert hooks.sender.posts[-1].url == url("new")
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED]
    assert (await hooks.webhooks.get(endpoint_id, workspace_id="ws-1")).enabled


async def test_after_three_days_of_failures_the_endpoint_is_disabled(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("dead")
    hooks.sender.answers[url("dead")] = [EndpointResponse(503)]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    await hooks.work(4)
    await hooks.queued(endpoint_id, 2)
    known = await hooks.webhooks.get(endpoint_id, workspace_id=None)
    assert known.disabled_reason == "failing"
    await hooks.after(100)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.FAILED, DeliveryStatus.STOPPED]


async def test_one_delivery_that_never_succeeds_does_not_disable_an_endpoint_that_works(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("picky")
    hooks.sender.answers[url("picky")] = [EndpointResponse(500)]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    hooks.sender.answers[url("picky")] = [EndpointResponse(200)]
    await hooks.queued(endpoint_id, 2)
    await hooks.after(1)
    hooks.sender.answers[url("picky")] = [EndpointResponse(500)]
    await hooks.work(4)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.FAILED, DeliveryStatus.DELIVERED]
    assert (await hooks.webhooks.get(endpoint_id, workspace_id=None)).enabled


async def test_a_failing_endpoint_is_left_alone_and_then_asked_with_one_post(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("down")
    hooks.sender.answers[url("down")] = [DOWN]
    await hooks.queued(endpoint_id, *range(25))
    await hooks.sweep()
    first = len(hooks.sender.posts)
    assert first == hooks.settings.in_flight
    await hooks.sweep()
    assert len(hooks.sender.posts) == first
    for rest in (1, 2, 4):
        await hooks.after(rest)
    assert len(hooks.sender.posts) == first + 3
    hooks.sender.answers[url("down")] = [EndpointResponse(204)]
    await hooks.after(8)
    await hooks.after(600)
    assert set(hooks.statuses(endpoint_id)) == {DeliveryStatus.DELIVERED}


async def test_an_endpoint_that_asks_for_a_pause_gets_it_for_all_its_deliveries(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("busy")
    hooks.sender.answers[url("busy")] = [EndpointResponse(429, 30.0), EndpointResponse(204)]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    await hooks.queued(endpoint_id, 2)
    await hooks.after(29)
    assert len(hooks.sender.posts) == 1
    await hooks.after(1)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED] * 2


async def test_a_secret_that_cannot_be_opened_costs_no_tries(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("sealed")
    await hooks.endpoints.rotate(
        endpoint_id,
        keyring_of("another deployment's").seal_text("x", of_webhook_secret(endpoint_id)),
        previous_until=None,
    )
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    assert hooks.sender.posts == []
    assert [entry.tries for entry in hooks.queue.of(endpoint_id)] == [0]


async def test_what_could_not_be_recorded_is_posted_again(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("slow")
    hooks.sender.hanging[url("slow")] = asyncio.Event()
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    hooks.queue.away = True
    hooks.sender.hanging[url("slow")].set()
    await settle()
    hooks.queue.away = False
    await hooks.after(2 * hooks.settings.post_seconds)
    assert hooks.sender.to(url("slow")) == ["event-1", "event-1"]
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED]


# --- dispatching ------------------------------------------------------------------------------------------------------------


async def test_an_endpoint_that_hangs_delays_nobody_else(hooks: Hooks) -> None:
    dead, alive = await hooks.add("dead"), await hooks.add("alive")
    hooks.sender.hanging[url("dead")] = asyncio.Event()
    await hooks.queued(dead, *range(50))
    await hooks.queued(alive, *range(50))
    await hooks.sweep()
    async with asyncio.timeout(60):
        while hooks.statuses(alive) != [DeliveryStatus.DELIVERED] * 50:
            await settle()
    assert hooks.sender.under_way[url("dead")] == hooks.settings.in_flight


async def test_however_many_hang_half_of_the_places_are_for_others() -> None:
    hooks = Hooks(NotifierSettings(max_endpoints=4, in_flight=1))
    dead = [await hooks.add(f"dead-{number}") for number in range(10)]
    for number, endpoint_id in enumerate(dead):
        hooks.backoff.record_failure(endpoint_id)
        hooks.sender.hanging[url(f"dead-{number}")] = asyncio.Event()
        await hooks.queued(endpoint_id, 1)
    await hooks.after(10)
    assert sum(hooks.sender.under_way.values()) == 2
    alive = await hooks.add("alive")
    await hooks.queued(alive, 1)
    await hooks.sweep()
    assert hooks.statuses(alive) == [DeliveryStatus.DELIVERED]
    for hanging in hooks.sender.hanging.values():
        hanging.set()
    assert await hooks.dispatcher.finish(5) == 0


async def test_whoever_found_no_place_has_a_turn_when_the_next_run_ends() -> None:
    hooks = Hooks(NotifierSettings(max_endpoints=1, in_flight=1))
    names = ["a", "b", "c"]
    ids = [await hooks.add(name) for name in names]
    for endpoint_id in ids:
        await hooks.queued(endpoint_id, *range(5))
    await hooks.sweep()
    assert len(hooks.sender.posts) == 1
    for _ in range(60):
        await hooks.sweep()
    assert all(hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED] * 5 for endpoint_id in ids)


async def test_a_disabled_or_removed_endpoint_s_run_stops_what_is_left(hooks: Hooks) -> None:
    disabled, removed = await hooks.add("disabled"), await hooks.add("removed")
    await hooks.queued(disabled, 1)
    await hooks.queued(removed, 1)
    await hooks.endpoints.remove(removed)
    await hooks.webhooks.disable(disabled, workspace_id="ws-1")
    await hooks.queued(disabled, 2)
    await hooks.sweep()
    assert hooks.statuses(disabled) == [DeliveryStatus.STOPPED] * 2
    assert hooks.statuses(removed) == [DeliveryStatus.STOPPED]
    assert hooks.sender.posts == []


async def test_stopping_waits_for_what_is_being_posted_and_starts_nothing(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("slow")
    hooks.sender.hanging[url("slow")] = asyncio.Event()
    await hooks.queued(endpoint_id, *range(25))
    await hooks.sweep()
    hooks.dispatcher.stopping = True
    finishing = asyncio.create_task(hooks.dispatcher.finish(30))
    await settle()
    assert not finishing.done()
    hooks.sender.hanging[url("slow")].set()
    assert await finishing == 0
    assert hooks.statuses(endpoint_id).count(DeliveryStatus.DELIVERED) == hooks.settings.in_flight
    assert len(hooks.sender.posts) == hooks.settings.in_flight


async def test_a_run_that_raises_is_contained(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_self: EndpointDispatcher, _endpoint_id: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(EndpointDispatcher, "run", broken)
    dispatcher = hooks.dispatcher
    with capture_logs() as logs:
        dispatcher.start(["whk_1"])
        await settle()
    assert [(each["event"], each["where"], each["endpoint_id"]) for each in logs] == [
        ("fault.contained", "webhook_endpoint", "whk_1")
    ]
    assert await dispatcher.finish(0.0) == 0, "its place is free again"


# --- management -------------------------------------------------------------------------------------------------------------


async def test_a_test_event_goes_to_that_endpoint_alone_whatever_it_takes(hooks: Hooks) -> None:
    tested = await hooks.add("tested", types=["reservation.failed.v1"])
    await hooks.add("other")
    number = await hooks.webhooks.test(tested, workspace_id="ws-1")
    await hooks.sweep()
    (post,) = hooks.sender.posts
    body = json.loads(post.body)
    assert (post.url, body["type"], body["data"]) == (
        url("tested"),
        "webhook.test.v1",
        {"endpointId": tested, "workspaceId": "ws-1"},
    )
    assert (await hooks.webhooks.delivery(tested, number, workspace_id="ws-1")).status is DeliveryStatus.DELIVERED


async def test_a_resent_delivery_keeps_its_id(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("again")
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    (entry,) = await hooks.webhooks.deliveries(endpoint_id, workspace_id="ws-1")
    resent = await hooks.webhooks.resend(endpoint_id, entry.id, workspace_id="ws-1")
    assert (resent.status, resent.tries) == (DeliveryStatus.PENDING, 0)
    await hooks.sweep()
    assert hooks.sender.to(url("again")) == ["event-1", "event-1"]


async def test_what_an_outage_cost_can_be_recovered(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("back")
    await hooks.queued(endpoint_id, 1, 2)
    await hooks.webhooks.disable(endpoint_id, workspace_id="ws-1")
    for refused in (
        hooks.webhooks.test(endpoint_id, workspace_id="ws-1"),
        hooks.webhooks.resend(endpoint_id, 1, workspace_id="ws-1"),
    ):
        with pytest.raises(EndpointDisabled, match=endpoint_id):
            await refused
    assert (await hooks.webhooks.enable(endpoint_id, workspace_id="ws-1")).enabled
    since = hooks.clock.now() - timedelta(hours=1)
    assert await hooks.webhooks.recover(endpoint_id, workspace_id="ws-1", since=since) == 2
    await hooks.sweep()
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED] * 2


async def test_another_workspace_s_endpoint_is_not_there(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("mine")
    webhooks = hooks.webhooks
    refusals = set()
    for asked in (endpoint_id, "whk_none"):
        for call in (
            webhooks.get(asked, workspace_id="ws-2"),
            webhooks.remove(asked, workspace_id="ws-2"),
            webhooks.rotate(asked, workspace_id="ws-2"),
            webhooks.disable(asked, workspace_id="ws-2"),
            webhooks.deliveries(asked, workspace_id="ws-2"),
            webhooks.test(asked, workspace_id="ws-2"),
            webhooks.change(asked, workspace_id="ws-2", url=url("theirs")),
        ):
            with pytest.raises(NotKnown) as refusal:
                await call
            refusals.add(str(refusal.value).replace(asked, "…"))
    assert len(refusals) == 1
    assert (await webhooks.get(endpoint_id, workspace_id="ws-1")).url == url("mine")
    for number in (7, -1, 2**70):
        with pytest.raises(NotKnown):
            await webhooks.delivery(endpoint_id, number, workspace_id="ws-1")


async def test_an_address_or_a_type_that_will_not_do_is_refused(hooks: Hooks) -> None:
    with pytest.raises(BadTarget):
        await hooks.webhooks.add("ws-1", "http://plain.example/")
    with pytest.raises(UnknownType, match=r"reservation\.eaten\.v1"):
        await hooks.webhooks.add("ws-1", url("a"), types=["reservation.eaten.v1"])
    endpoint_id = await hooks.add("a")
    with pytest.raises(BadTarget):
        await hooks.webhooks.change(endpoint_id, workspace_id="ws-1", url="https://host.internal/")
    changed = await hooks.webhooks.change(endpoint_id, workspace_id="ws-1", types=["reservation.failed.v1"])
    assert (changed.url, changed.types) == (url("a"), ("reservation.failed.v1",))
    assert (await hooks.webhooks.change(endpoint_id, workspace_id="ws-1", types=None)).types is None


async def test_a_secret_is_kept_sealed(hooks: Hooks) -> None:
    endpoint, secret = await hooks.webhooks.add("ws-1", url("a"))
    assert secret not in repr(endpoint)
    assert secret not in str([endpoint.secret, endpoint.previous])
    assert keyring_of(SECRET).open_text(endpoint.secret, of_webhook_secret(endpoint.id)) == secret


@pytest.mark.parametrize("meanwhile", [{"description": "ours"}, {"headers": {"X-Tenant": "7"}}])
async def test_what_another_changes_meanwhile_is_kept(hooks: Hooks, meanwhile: WebhookTerms) -> None:
    endpoint_id = await hooks.add("a")
    asked, go = asyncio.Event(), asyncio.Event()

    async def find(_host: str, _port: int) -> Sequence[str]:
        asked.set()
        await go.wait()
        return ["93.184.215.14"]

    slow = replace(hooks.webhooks, targets=ResolvedTargets(AddressRule(), find))
    moving = asyncio.create_task(slow.change(endpoint_id, workspace_id="ws-1", url=url("b")))
    await asked.wait()
    await hooks.webhooks.change(endpoint_id, workspace_id="ws-1", **meanwhile)
    go.set()
    if "headers" in meanwhile:  # sealed for the address that it still has
        with pytest.raises(HeadersNeeded):
            await moving
    else:
        assert ((await moving).url, (await moving).description) == (url("b"), "ours")
