"""Notifiers that were away for longer than a delivery is tried: what nobody tried did not fail, and no endpoint failed by it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from forwarder.notifier.posting import PAUSES, RETRY_FOR, NotifierSettings
from forwarder.store.deliveries import DeliveryStatus
from forwarder.tenancy.sealing import of_webhook_secret
from forwarder.webhooks.port import EndpointResponse, PostResult
from tests.support.memory.clock import settle
from tests.support.sealing import keyring_of
from tests.support.stages.notifier_parts import SECRET, Hooks, url

DAY = 24 * 60 * 60.0
FAILING: PostResult = EndpointResponse(503)
WORKING: PostResult = EndpointResponse(204)
FAR_APART = 9
"""So many tries there are in three days at the least, whatever is drawn: each after twice its pause."""


@pytest.fixture
async def hooks() -> AsyncIterator[Hooks]:
    made = Hooks()
    yield made
    await made.dispatcher.finish(5)


async def _disabled_reason(hooks: Hooks, endpoint_id: str) -> str | None:
    return (await hooks.webhooks.get(endpoint_id, workspace_id=None)).disabled_reason


def _tries(hooks: Hooks, endpoint_id: str) -> list[int]:
    return [entry.tries for entry in hooks.queue.of(endpoint_id)]


async def _outage(hooks: Hooks, days: float = 4) -> None:
    """No notifier runs; then another does."""
    await hooks.clock.advance(days * DAY)
    hooks.restart()


async def test_what_waited_for_days_is_tried_from_its_first_try_on(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("good")
    await hooks.queued(endpoint_id, *range(29))
    await _outage(hooks)
    hooks.sender.answers[url("good")] = [*[FAILING] * 10, WORKING]
    await hooks.work(0.1)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED] * 29
    assert await _disabled_reason(hooks, endpoint_id) is None


async def test_an_outage_between_two_tries_is_no_time_of_trying(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("unlucky")
    hooks.sender.answers[url("unlucky")] = [FAILING]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    for tries in (2, 3, 4):
        await _outage(hooks)
        await hooks.sweep()
        assert (hooks.statuses(endpoint_id), _tries(hooks, endpoint_id)) == ([DeliveryStatus.PENDING], [tries])
    hooks.sender.answers[url("unlucky")] = [WORKING]
    await hooks.work(1)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED]


async def test_a_dead_endpoint_is_disabled_however_often_notifiers_are_away(hooks: Hooks) -> None:
    """An outage counts for as long as the delivery might have waited anyway."""
    endpoint_id = await hooks.add("dead")
    hooks.sender.answers[url("dead")] = [FAILING]
    await hooks.queued(endpoint_id, 1)
    for _ in range(FAR_APART - 1):
        await hooks.sweep()
        await _outage(hooks)
        assert await _disabled_reason(hooks, endpoint_id) is None
    await hooks.sweep()
    assert await _disabled_reason(hooks, endpoint_id) == "failing"
    assert _tries(hooks, endpoint_id) == [FAR_APART]


async def test_a_dead_endpoint_s_crowd_does_not_prolong_its_trying() -> None:
    """Each of the crowd waits for days between two posts, but the endpoint is posted to all the time, and fails."""
    hooks = Hooks(NotifierSettings(max_backoff_seconds=900.0))
    endpoint_id = await hooks.add("dead")
    hooks.sender.answers[url("dead")] = [FAILING]
    await hooks.queued(endpoint_id, *range(100))
    await hooks.work(RETRY_FOR / timedelta(days=1) - 0.1)
    assert await _disabled_reason(hooks, endpoint_id) is None
    await hooks.work(2)
    assert await _disabled_reason(hooks, endpoint_id) == "failing"
    assert DeliveryStatus.PENDING not in hooks.statuses(endpoint_id)


async def test_a_store_that_is_away_is_no_failure_of_the_endpoint(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("unlucky")
    hooks.sender.answers[url("unlucky")] = [FAILING]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    await hooks.clock.advance(4 * DAY)  # the same process, which could ask for nothing
    await hooks.sweep()
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.PENDING]
    assert await _disabled_reason(hooks, endpoint_id) is None


async def test_a_secret_that_could_not_be_opened_for_days_is_no_failure_of_the_endpoint(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("sealed")
    hooks.sender.answers[url("sealed")] = [FAILING]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    await hooks.endpoints.rotate(
        endpoint_id,
        keyring_of("another deployment's").seal_text("x", of_webhook_secret(endpoint_id)),
        previous_until=None,
    )
    await hooks.work(4)
    await hooks.endpoints.rotate(
        endpoint_id, keyring_of(SECRET).seal_text("whsec_eA==", of_webhook_secret(endpoint_id)), previous_until=None
    )
    await hooks.work(0.02)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.PENDING]
    assert await _disabled_reason(hooks, endpoint_id) is None


async def test_a_clock_that_jumps_forward_is_no_time_of_trying(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("unlucky")
    hooks.sender.answers[url("unlucky")] = [FAILING]
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    for _ in range(3):
        hooks.clock.jump(30 * DAY)
        await hooks.after(60)
    assert _tries(hooks, endpoint_id) == [4]
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.PENDING]
    assert await _disabled_reason(hooks, endpoint_id) is None


async def test_for_how_long_an_endpoint_only_failed_is_what_was_seen_without_a_break(hooks: Hooks) -> None:
    backoff, clock = hooks.backoff, hooks.clock

    async def posts(count: int) -> float:
        for _ in range(count):
            backoff.record_failure("whk_1", endpoint_failed=True)
            await clock.advance(900)
        return backoff.failing_seconds("whk_1")

    assert backoff.failing_seconds("whk_1") == 0
    assert await posts(8) == 2 * 3600
    clock.jump(30 * DAY)
    assert backoff.failing_seconds("whk_1") == 0
    assert await posts(4) == 3600
    await clock.advance(4 * 3600)
    assert backoff.failing_seconds("whk_1") == 0
    assert await posts(4) == 3600
    backoff.record_failure("whk_1")  # the store was away
    assert await posts(2) == 1800
    backoff.failing.pop("whk_1")
    assert backoff.failing_seconds("whk_1") == 0


async def test_a_clock_that_jumps_while_a_post_is_under_way_is_no_time_of_trying(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("unlucky")
    hooks.sender.answers[url("unlucky")] = [FAILING, WORKING]
    hooks.sender.hanging[url("unlucky")] = asyncio.Event()
    await hooks.queued(endpoint_id, 1)
    await hooks.sweep()
    hooks.clock.jump(4 * DAY)
    hooks.sender.hanging[url("unlucky")].set()
    await settle()
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.PENDING]
    await hooks.work(1)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED]


async def test_what_is_resent_or_recovered_after_weeks_is_tried_for_its_whole_time_again(hooks: Hooks) -> None:
    endpoint_id = await hooks.add("back")
    hooks.sender.answers[url("back")] = [FAILING]
    await hooks.queued(endpoint_id, 1, 2)
    await hooks.work(4)
    assert await _disabled_reason(hooks, endpoint_id) == "failing"
    await hooks.clock.advance(14 * DAY)
    await hooks.webhooks.enable(endpoint_id, workspace_id=None)
    since = hooks.clock.now() - timedelta(days=30)
    assert await hooks.webhooks.recover(endpoint_id, workspace_id=None, since=since) == 2
    await hooks.webhooks.resend(endpoint_id, 1, workspace_id=None)
    await _outage(hooks)
    await hooks.work(2.9)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.PENDING] * 2
    hooks.sender.answers[url("back")] = [WORKING]
    await hooks.work(2)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED] * 2


async def test_what_was_queued_while_its_endpoint_was_disabled_is_not_held_against_it(hooks: Hooks) -> None:
    """An event may be queued for an endpoint that is being disabled; then it is enabled again, before anybody looked."""
    endpoint_id = await hooks.add("again")
    await hooks.webhooks.disable(endpoint_id, workspace_id=None)
    await hooks.queued(endpoint_id, 1)
    await _outage(hooks)
    await hooks.webhooks.enable(endpoint_id, workspace_id=None)
    hooks.sender.answers[url("again")] = [FAILING, WORKING]
    await hooks.work(0.1)
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.DELIVERED]


async def test_one_that_takes_others_at_the_same_time_is_not_disabled(hooks: Hooks) -> None:
    """The last try of the one it does not take comes with another, after days in which nothing happened."""
    endpoint_id = await hooks.add("picky")
    hooks.sender.answers[url("picky")] = [FAILING]
    await hooks.queued(endpoint_id, 1)
    for _ in range(FAR_APART - 1):
        await hooks.sweep()
        await _outage(hooks)
    await hooks.queued(endpoint_id, 2)
    hooks.sender.answers[url("picky")] = [FAILING, WORKING]
    await hooks.sweep()
    assert hooks.statuses(endpoint_id) == [DeliveryStatus.FAILED, DeliveryStatus.DELIVERED]
    assert await _disabled_reason(hooks, endpoint_id) is None


def test_the_schedule_leaves_no_room_for_fewer_tries() -> None:
    pauses = [2 * pause for pause in PAUSES]
    assert sum(pauses[: FAR_APART - 2], timedelta()) < RETRY_FOR <= sum(pauses[: FAR_APART - 1], timedelta())
    assert NotifierSettings().max_retry_after_seconds < 3600
