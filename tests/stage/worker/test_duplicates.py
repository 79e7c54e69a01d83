"""What a worker does with what is an earlier submission sent again: nothing of it reaches the PMS, and who waits is told."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_core import from_json

from forwarder.operate.submissions.dead_letters import DeadLetterReader, LetterFilter, LetterState, plan_replay
from forwarder.process.clock import iso
from forwarder.reservation.submission import NaturalKey, Submission
from forwarder.store.lists.overview import Overview
from forwarder.topics.codec import CONFLICT, header, replayed
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


async def test_one_transaction_pays_for_two_rooms(bench: Bench) -> None:
    cart = [replace(sent(n), natural=NaturalKey("same", "tx", 300, same=f"room {n}", stay="stay")) for n in (1, 2)]
    await bench.submit(*cart)
    async with bench.worker():
        await bench.rows("CONFIRMED", 2)
        events = await bench.read(TOPICS.results, 2)
    assert {*bench.pms.asked} == {each.request_id for each in cart}
    assert (await bench.stored(2)).similar_to == (cart[0].request_id,)
    told = {from_json(each.message.value)["requestId"]: from_json(each.message.value) for each in events}
    assert told[cart[1].request_id]["similarTo"] == [cart[0].request_id]
    assert "similarTo" not in told[cart[0].request_id]


async def test_another_body_under_one_key_is_announced_and_never_pushed(bench: Bench) -> None:
    first = sent(1)
    other = replace(first, fingerprint="0" * 32)
    await bench.submit(first, other)
    async with bench.worker():
        await bench.rows("CONFIRMED", 1)
        events = await bench.read(TOPICS.results, 2)
    (told,) = [each.message for each in events if header(each.message.headers, "ce_type") == CONFLICT]
    assert (header(told.headers, "ce_subject"), from_json(told.value)["fingerprint"]) == (first.request_id, "0" * 32)
    assert bench.pms.asked == [first.request_id]
    assert (await bench.stored(1)).conflicting_at == iso(other.accepted_at)


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
        letters = DeadLetterReader(bench.log, TOPICS.dead_letters, Overview(bench.engine))
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
