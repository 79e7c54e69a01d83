"""Cards, attacked on every backend by somebody who has the secret, the topic and the whole database: nothing opens once it is over,
and nothing is of use where it was moved to."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic_core import to_json
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.operate.deployment.secrets import SealedCardKeys
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.reservation.submission import Submission
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.port import Arrival, Work
from forwarder.store.submissions.recorder import Recorder
from forwarder.tenancy.port import CannotOpen, NotBound
from forwarder.tenancy.sealing import (
    GONE,
    CardSealer,
    Keyring,
    NotTrusted,
    Secret,
    WrappedKey,
    of_card,
    open_from_topic,
)
from forwarder.tenancy.sql.secrets import AHEAD, HOUR, MARGIN, SealingKeys, load_sealing_keys
from forwarder.topics.codec import encode_submission
from forwarder.topics.port import Log
from forwarder.worker.cards import CardGone, CardKeeper, CardParts, CardVault, CodeGone
from forwarder.worker.parts import WorkerParts, WorkerSettings
from tests.support.log.messages import new_topic
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import final
from tests.support.worker.works import account, submission

SECRET = Secret.from_text("the secret of this deployment")
GROUP = "workers"
CARD = CardDetails.model_validate({"cardNumber": "4111111111111111", "cardHolderName": "A RUIZ", "cvv": "907"})
PMS = "https://pms.example/api"
ACCOUNT = replace(account(), base_url=PMS)
DEADLINE = timedelta(hours=6)


class Site:
    """An ingress, and a worker that takes in what is on the log, with a clock that is moved by hand."""

    def __init__(self, log: Log, topic: str, engine: AsyncEngine, keyring: Keyring) -> None:
        self.log, self.topic, self.engine, self.keyring = log, topic, engine, keyring
        self.clock = ManualClock()
        self.sealing_keys, self.keys = SealingKeys(engine, keyring), CardKeys(engine)
        self.recorder = Recorder(engine)
        self.vault = CardVault(self.keys, self.sealing_keys, keyring)
        cards = CardParts(self.keys, self.sealing_keys, keyring, self._refresh)
        ports = {"log": log, "topics": SimpleNamespace(requests=topic), "settings": WorkerSettings(group=GROUP)}
        self.parts = cast("WorkerParts", SimpleNamespace(cards=cards, clock=self.clock, **ports))
        self.keeper = CardKeeper(self.parts, self.vault)
        self.ingress = CardSealer()
        self.sealed: dict[str, SealedCard] = {}

    async def _refresh(self) -> None:
        """The one secret stays."""

    async def start_ingress(self) -> None:
        self.ingress.use(await load_sealing_keys(self.engine, now=self.clock.now()))

    async def submit(self, number: int, *, card: CardDetails = CARD) -> Submission:
        """Sealed as an ingress does it, and on the log."""
        bare = replace(submission(number), accepted_at=self.clock.now())
        sealed = self.ingress.seal_card(card, of_card(bare.request_id, "acc", PMS), self.clock.now())
        assert sealed is not None
        self.sealed[bare.request_id] = sealed
        taken = replace(bare, card=sealed)
        async with self.log.publisher() as publisher:
            message = encode_submission(taken, iso(taken.accepted_at), to_json(dict(taken.reservation)))
            await publisher.publish(self.topic, [message])
        return taken

    async def take_in(self, *taken: Submission) -> Sequence[Work]:
        """As intake does it."""
        deadline = self.clock.now() + DEADLINE
        arrivals = [Arrival(each, 0, deadline, held=True) for each in taken]
        resealed = await self.vault.reseal(arrivals)
        return await self.recorder.ingest(
            "w1", [resealed.get(each.submission.request_id, each) for each in arrivals], now=self.clock.now()
        )

    async def commit(self, count: int) -> None:
        """What is on the log was taken in."""

        async def nothing(_partitions: frozenset[int]) -> None: ...

        async with self.log.consumer(self.topic, group=GROUP, on_partitions=nothing) as consumer:
            seen = 0
            while seen < count:
                messages = await consumer.receive(max_messages=100, wait_seconds=0.5)
                await consumer.commit(messages)
                seen += len(messages)

    async def later(self, by: timedelta) -> None:
        """After rounds of the keeper: the first notes the ends, the second destroys."""
        await self.clock.advance(by.total_seconds())
        await self.keeper.keep_once()
        await self.keeper.keep_once()

    async def stolen(self) -> dict[str, list[dict[str, Any]]]:
        """The whole of the database."""
        async with self.engine.connect() as connection:
            return {
                table: [dict(row) for row in (await connection.execute(text(f"SELECT * FROM {table}"))).mappings()]
                for table in ("reservations", "card_keys", "sealing_keys")
            }

    async def run(self, statement: str, **values: Any) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(text(statement), values)

    async def cards_that_open(self) -> set[str]:
        """What the attacker reads, with the secret and all there is: of the topic's copies, and of the rows."""
        stolen, wrapper = await self.stolen(), self.keyring
        found = await self.cards_on_topic_that_open()
        vault = CardVault(CardKeys(self.engine), self.sealing_keys, wrapper)
        for row in stolen["reservations"]:
            kept = row["card"] and SealedCard(*json.loads(row["card"]).values())
            try:
                opened = await vault.open(replace(submission(), request_id=row["request_id"], card=kept), ACCOUNT)
            except CodeGone:
                found.add(f"row {row['request_id']} without its code")
            except CannotOpen:
                continue
            else:
                await vault.put_back(row["request_id"])
                found.add(f"row {row['request_id']} {opened.card_number} {opened.cvv}")
        return found

    async def cards_on_topic_that_open(self) -> set[str]:
        stolen, wrapper, found = await self.stolen(), self.keyring, set()
        for key in stolen["sealing_keys"]:
            if key["private_key"] is None:
                continue
            private = wrapper.unwrap(WrappedKey(key["secret_id"], key["private_key"]), f"sealing-key {key['key_id']}")
            for request_id, sealed in self.sealed.items():
                if sealed.key_id == key["key_id"]:
                    found.add(f"topic {request_id} {open_from_topic(sealed, private)[1].card_number}")
        return found


@pytest.fixture
async def site(log: Log, engine: AsyncEngine) -> Site:
    keyring = Keyring([SECRET])
    opened = Site(log, await new_topic(log, 2), engine, keyring)
    await opened.recorder.renew("w1", seconds=1e6)
    await opened.keeper.keep_once()
    await opened.start_ingress()
    return opened


async def test_a_card_is_opened_for_its_push_and_by_nobody_once_that_has_ended(site: Site) -> None:
    taken = await site.submit(1)
    (work,) = await site.take_in(taken)
    assert await site.vault.open(work.submission, ACCOUNT) == CARD
    await site.vault.put_back(taken.request_id)
    assert len(await site.cards_that_open()) == 2
    await site.recorder.record("w1", [final(work)], [])
    await site.commit(1)
    await site.later(HOUR + MARGIN)
    assert await site.cards_that_open() == set()
    assert (await site.stolen())["card_keys"] == []


async def test_a_card_in_doubt_is_destroyed_at_its_deadline_and_its_code_by_the_first_push(site: Site) -> None:
    taken = await site.submit(1)
    (work,) = await site.take_in(taken)
    await site.vault.open(work.submission, ACCOUNT)  # and then the worker is killed, or the push is in doubt
    assert (await site.stolen())["card_keys"][0]["code_key"] is None
    await site.recorder.record("w1", [final(work, status=Status.IN_DOUBT)], [])
    with pytest.raises(CodeGone):
        await CardVault(site.keys, site.sealing_keys, site.keyring).open(work.submission, ACCOUNT)
    await site.commit(1)
    await site.later(DEADLINE)
    assert (await site.stolen())["reservations"][0]["status"] == "IN_DOUBT"
    assert await site.cards_that_open() == set()
    with pytest.raises(CardGone):
        await site.vault.open(work.submission, ACCOUNT)


async def test_a_short_lived_key_outlives_what_was_not_taken_in_and_nothing_else(site: Site) -> None:
    waiting = await site.submit(1)
    await site.later(AHEAD)
    assert await site.cards_that_open() == {f"topic {waiting.request_id} {CARD.card_number}"}
    await site.take_in(waiting)
    await site.later(timedelta(seconds=1))
    assert f"topic {waiting.request_id} {CARD.card_number}" in await site.cards_that_open()  # not committed
    await site.commit(1)
    await site.later(timedelta(seconds=1))
    assert await site.cards_that_open() == {f"row {waiting.request_id} {CARD.card_number} {CARD.cvv}"}


async def test_what_is_delivered_again_needs_no_key_and_what_comes_too_late_is_told_as_such(site: Site) -> None:
    first, late = await site.submit(1), await site.submit(2)
    (work,) = await site.take_in(first)
    await site.commit(2)
    await site.later(HOUR + MARGIN)
    assert await site.take_in(first) == []
    assert await site.vault.open(work.submission, ACCOUNT) == CARD
    (gone,) = await site.take_in(late)
    assert gone.submission.card == GONE
    with pytest.raises(CardGone):
        await site.vault.open(gone.submission, ACCOUNT)


async def test_a_card_that_is_moved_to_another_row_account_or_address_is_not_opened(site: Site) -> None:
    mine, theirs = await site.take_in(await site.submit(1), await site.submit(2))
    ids = {"mine": mine.submission.request_id, "theirs": theirs.submission.request_id}
    elsewhere = ("https://evil.example/api", "http://pms.example/api", "https://pms.example:8443/api")
    for whose in (replace(ACCOUNT, id="evil"), *(replace(ACCOUNT, base_url=url) for url in elsewhere)):
        with pytest.raises(NotBound):
            await site.vault.open(theirs.submission, whose)
        await site.vault.put_back(ids["theirs"])
    with pytest.raises(NotBound):  # the card alone moved
        await site.vault.open(replace(mine.submission, card=theirs.submission.card), ACCOUNT)
    await site.run("DELETE FROM card_keys WHERE request_id = :mine", mine=ids["mine"])
    await site.run("UPDATE card_keys SET request_id = :mine WHERE request_id = :theirs", **ids)
    with pytest.raises(NotBound):  # the card and its keys moved
        await site.vault.open(replace(mine.submission, card=theirs.submission.card), ACCOUNT)


async def test_a_sealed_card_that_comes_with_another_submission_is_not_taken_for_its_card(site: Site) -> None:
    theirs, mine = await site.submit(1), await site.submit(2)
    (work,) = await site.take_in(replace(mine, card=theirs.card))
    with pytest.raises(NotBound):
        await site.vault.open(work.submission, ACCOUNT)


async def test_a_sealing_key_that_was_put_into_the_database_is_not_trusted(site: Site) -> None:
    thief = Keyring([Secret.from_text("the secret of a thief")])
    await site.run("DELETE FROM sealing_keys")
    await SealingKeys(site.engine, thief).publish(now=site.clock.now())
    planted = await load_sealing_keys(site.engine, now=site.clock.now())
    await site.run("UPDATE sealing_keys SET verify_key = :key", key=SECRET.verify_key.hex())
    for key in (*planted, *await load_sealing_keys(site.engine, now=site.clock.now())):
        with pytest.raises(NotTrusted):
            key.require_trusted({SECRET.verify_key})


async def test_an_ingress_seals_for_two_days_without_the_database_and_then_not(site: Site) -> None:
    bound, now = of_card("rsv", "acc", PMS), site.clock.now()
    for hours, works in ((0, True), (1, True), (47, True), (50, False)):
        assert (site.ingress.seal_card(CARD, bound, now + timedelta(hours=hours)) is not None) is works


async def test_several_workers_publish_one_key_for_each_hour(site: Site) -> None:
    now = site.clock.now()
    assert await site.sealing_keys.publish(now=now) == 0
    assert await site.sealing_keys.publish(now=now + HOUR) == 1
    hours = [key.not_before for key in await load_sealing_keys(site.engine, now=now)]
    assert hours == sorted(set(hours))


async def test_keys_of_cards_are_moved_to_another_secret_and_a_taken_code_stays_gone(site: Site) -> None:
    one, two = await site.take_in(await site.submit(1), await site.submit(2))
    await site.vault.open(two.submission, ACCOUNT)
    both = Keyring([new := Secret.from_text("the secret that follows it"), SECRET])
    for sealed in (SealedCardKeys(site.keys), site.sealing_keys):
        resealed = await sealed.reseal(both)
        assert not any(each.failed for each in resealed.values())
    assert set(await site.keys.counts()) == {new.id}
    vault = CardVault(site.keys, SealingKeys(site.engine, Keyring([new])), Keyring([new]))
    assert await vault.open(one.submission, ACCOUNT) == CARD
    with pytest.raises(CodeGone):
        await vault.open(two.submission, ACCOUNT)
    for key in await load_sealing_keys(site.engine, now=site.clock.now()):
        key.require_trusted({new.verify_key})


async def test_a_code_that_a_push_did_not_use_is_put_back_although_its_keys_were_moved_meanwhile(site: Site) -> None:
    new = Secret.from_text("the secret that follows it")
    vault = CardVault(site.keys, SealingKeys(site.engine, both := Keyring([SECRET, new])), both)
    (work,) = await site.take_in(taken := await site.submit(1))
    assert await vault.open(work.submission, ACCOUNT) == CARD
    assert (await SealedCardKeys(site.keys).reseal(Keyring([new, SECRET])))["cards"].moved == 1
    await vault.put_back(taken.request_id)
    assert await site.keys.counts() == {new.id: 1}
    assert await _vault_of(site, new).open(work.submission, ACCOUNT) == CARD


async def test_a_card_taken_in_without_its_secret_keeps_its_hours_key_until_it_is_sealed_anew(site: Site) -> None:
    """Whoever has the secret does that, before the hour's key goes. A worker that had the row in memory before opens it too."""
    able, lacking = site.vault, _vault_of(site, Secret.from_text("another secret of this deployment"))
    site.vault = lacking
    waiting, ended = await site.take_in(await site.submit(1), await site.submit(2))
    site.vault = able
    await site.commit(2)
    with pytest.raises(CannotOpen, match=SECRET.id):
        await lacking.open(waiting.submission, ACCOUNT)
    await site.recorder.record("w1", [final(ended)], [])
    await site.clock.advance((HOUR + MARGIN).total_seconds())
    keeper = CardKeeper(site.parts, lacking)
    for _round in range(3):
        await keeper.keep_once()
    assert len(await site.keys.sealing_keys()) == 1  # neither destroyed nor given up
    assert len(await site.cards_on_topic_that_open()) == 2

    await site.later(timedelta(seconds=1))
    assert await site.keys.sealing_keys() == []
    assert await site.cards_on_topic_that_open() == set()
    assert await able.open(waiting.submission, ACCOUNT) == CARD
    (kept,) = (await site.stolen())["card_keys"]
    assert (kept["request_id"], kept["code_key"]) == (waiting.submission.request_id, None)


async def test_a_card_taken_in_without_its_secret_follows_that_to_another(site: Site) -> None:
    able, site.vault = site.vault, _vault_of(site, new := Secret.from_text("the secret that follows it"))
    (work,) = await site.take_in(await site.submit(1))
    for sealed in (SealedCardKeys(site.keys), site.sealing_keys):
        assert not any(each.failed for each in (await sealed.reseal(Keyring([new, SECRET]))).values())
    assert await site.keys.counts() == {}
    with pytest.raises(CannotOpen, match=new.id):
        await able.open(work.submission, ACCOUNT)
    assert await site.vault.open(work.submission, ACCOUNT) == CARD
    with pytest.raises(CodeGone):
        await _vault_of(site, new).open(work.submission, ACCOUNT)


def _vault_of(site: Site, secret: Secret) -> CardVault:
    """Of a worker that has this secret alone."""
    keyring = Keyring([secret])
    return CardVault(site.keys, SealingKeys(site.engine, keyring), keyring)
