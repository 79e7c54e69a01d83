"""What a worker does with what is an earlier submission sent again: nothing of it reaches the PMS, and who waits is told."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_core import from_json

from forwarder.operations.repair.dead_letter_messages import replayed
from forwarder.operations.repair.dead_letters import DeadLetterReader, LetterFilter, LetterState
from forwarder.operations.repair.replay import plan_replay
from forwarder.reservation.duplicates import NaturalKey
from forwarder.reservation.submission import Submission
from forwarder.store.lists.overview import SqlOverview
from forwarder.topics.codec import header
from tests.support.log.signers import SIGNER
from tests.support.worker.worker_bench import TOPICS, Bench, cancellation, fresh, message_of, open_bench


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        yield opened


def sent(number: int, key: str = "same", transaction: str | None = None) -> Submission:
    return replace(fresh(number, propertyId=1001), natural=NaturalKey(key, transaction, 300))


async def test_it_is_pushed_once_and_who_waits_is_told(bench: Bench) -> None:
    await bench.submit(sent(1), sent(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        await bench.submit(sent(3))
        events = await bench.read(TOPICS.results, 3)
    assert bench.pms.asked == [sent(1).request_id]
    told = [each.message for each in events if header(each.message.headers, "ce_type") == "reservation.duplicate.v1"]
    assert [header(each.headers, "ce_subject") for each in told] == [sent(2).request_id, sent(3).request_id]
    assert from_json(told[0].value) == {
        "requestId": sent(2).request_id,
        "workspaceId": "demo",
        "integrationAccountId": "acc",
        "duplicateOf": sent(1).request_id,
    }
    assert (await bench.stored(3)).request_id == sent(1).request_id


@pytest.mark.parametrize("held", [True, False])
async def test_a_transaction_used_for_something_else_is_never_pushed(bench: Bench, *, held: bool) -> None:
    """Whether it goes on at once, or is claimed by the next worker."""
    await bench.submit(sent(1, transaction="tx"), sent(2, "other", "tx"))
    if not held:
        bench.accounts.one = replace(bench.accounts.one, paused=True)
        async with bench.worker():
            await bench.taken_in()
        bench.accounts.one = replace(bench.accounts.one, paused=False)
    async with bench.worker():
        await bench.rows("REJECTED", 1)
        await bench.rows("CONFIRMED", 1)
    assert bench.pms.asked == [sent(1).request_id]
    problem = (await bench.stored(2)).problem
    assert problem is not None
    assert (problem["code"], problem["status"]) == ("transaction_reused", 409)
    assert problem["transactionOf"] == sent(1).request_id


async def test_a_dead_letter_in_whose_place_another_was_sent_is_not_pushed(bench: Bench) -> None:
    bench.accounts.one = replace(bench.accounts.one, deadline_seconds=1)
    bench.pms.putting_off = True
    await bench.submit(sent(1))
    async with bench.worker():
        await bench.rows("FAILED", 1)
        (letter,) = await bench.read(TOPICS.dead_letters, 1)
        bench.pms.putting_off = False
        bench.pms.asked.clear()
        bench.accounts.one = replace(bench.accounts.one, deadline_seconds=3600)
        await bench.submit(sent(2))
        await bench.rows("CONFIRMED", 1)
        letters = DeadLetterReader(bench.log, TOPICS.dead_letters, SqlOverview(bench.engine))
        ((shown, state),) = await letters.find(LetterFilter())
        assert (shown.superseded_by, state) == (sent(2).request_id, LetterState.SUPERSEDED)
        assert plan_replay([(shown, state)], by_id=True).chosen == []
        await bench.publisher.publish(TOPICS.requests, [SIGNER.signed_like(letter.message, replayed(letter.message))])
        await bench.taken_in()
    assert bench.pms.asked == [sent(2).request_id]
    assert len(await bench.rows("FAILED", 1)) == 1


async def test_who_cancels_it_cancels_what_it_repeats(bench: Bench) -> None:
    await bench.submit(sent(1), sent(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        await bench.cancel(cancellation(2))
        await bench.rows("CANCELLED", 1)
    assert bench.pms.to_cancel == [f"pms-{sent(1).request_id}"]


async def test_what_a_worker_died_over_is_decided_once(bench: Bench) -> None:
    """The log delivers it again: the same is a duplicate of the same."""
    await bench.submit(sent(1), sent(2))
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
    await bench.publisher.publish(TOPICS.requests, [message_of(sent(2)), message_of(sent(1))])
    async with bench.worker():
        await bench.taken_in()
    assert bench.pms.asked == [sent(1).request_id]
    assert len(await bench.rows("CONFIRMED", 1)) == 1
