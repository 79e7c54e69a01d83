"""A worker that lacks the secret which a card needs: that reservation waits for one that has it, and nothing else does."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from forwarder.process.clock import SystemClock
from forwarder.reservation.request import CardDetails
from forwarder.reservation.submission import Submission
from forwarder.store.lists.port import StoredSubmission
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.tenancy.sealing import CardSealer, Keyring, Secret, of_card
from forwarder.tenancy.sql.secrets import SealingKeys, load_sealing_keys
from forwarder.worker.cards import CardParts
from tests.support.worker.worker_bench import PATIENCE_SECONDS, Bench, fresh, open_bench

OLD, NEW = (Secret.from_text(f"the {which} secret of this deployment") for which in ("old", "new"))
CARD = CardDetails.model_validate({"cardNumber": "4111111111111111", "cardHolderName": "A RUIZ", "cvv": "907"})


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        yield opened


def parts(bench: Bench, *held: Secret) -> CardParts:
    """Of a worker that has these secrets, of which the first is active."""
    keyring = Keyring(held)

    async def refresh() -> None:
        """It stays the active one."""

    return CardParts(CardKeys(bench.engine), SealingKeys(bench.engine, keyring), keyring, refresh)


async def carded(bench: Bench, number: int) -> Submission:
    """Its card sealed as an ingress does it, to a key that the new secret wraps."""
    now, bare = SystemClock().now(), fresh(number, cardDetails={"cardNumber": "411111******1111"})
    await SealingKeys(bench.engine, Keyring([NEW, OLD])).publish(now=now)
    ingress = CardSealer(await load_sealing_keys(bench.engine, now=now))
    return replace(bare, card=ingress.seal_card(CARD, of_card(bare.request_id, "acc", "https://pms.test"), now))


async def test_what_it_cannot_open_waits_alone_and_is_made_once_by_one_that_can(bench: Bench) -> None:
    bench.accounts.add("other")
    waiting = await carded(bench, 2)
    await bench.submit(fresh(1), waiting, fresh(3), fresh(4, account="other"))
    bench.cards = parts(bench, OLD)
    async with bench.worker():
        await bench.rows("CONFIRMED", 3)
        await bench.taken_in()
        stored = await _tried(bench, 2)
    assert (stored.status, stored.attempts[-1].reason) == ("PENDING", "card_key_missing")
    assert bench.pms.cards == []
    bench.cards = parts(bench, NEW, OLD)
    async with bench.worker():
        await bench.rows("CONFIRMED", 4)
    assert sorted(bench.pms.asked) == [fresh(number).request_id for number in range(1, 5)]
    assert bench.pms.cards == [CARD]


async def _tried(bench: Bench, number: int) -> StoredSubmission:
    """Once a try of it is recorded."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (stored := await bench.stored(number)).attempts:
            await asyncio.sleep(0.01)
    return stored
