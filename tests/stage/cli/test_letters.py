"""The dead letters as an operator's commands see them: read whole, selected, held against the store, and shown."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forwarder.operate.submissions.dead_letters import (
    DeadLetterReader,
    Letter,
    LetterFilter,
    LetterState,
    headers_of,
    letter_of,
    plan_replay,
    row,
    value_of,
)
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Deferred, Status
from forwarder.reservation.request import SealedCard
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.submissions.port import Arrival, Ended, Work, with_attempt
from forwarder.store.submissions.recorder import Recorder
from forwarder.topics.codec import Undecodable, replayed
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import MAX_MESSAGE_BYTES, ConsumedMessage, Message, Publisher, Topics
from forwarder.worker.outcome.recorder import DeadLetterWriter, letter_message
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.store import stored
from tests.support.store.stored import CARD, DEADLINE, final
from tests.support.worker.works import NOW

TOPICS = Topics()
LETTERS = DeadLetterWriter(TOPICS, "workers")


def failure(work: Work, reason: str = "pms_unavailable") -> tuple[Ended, Message]:
    """How `work` failed, and its letter."""
    attempts = with_attempt((), "create", iso(NOW), 0.1, Deferred(reason, "Down."))
    end = replace(final(work, status=Status.FAILED), attempts=attempts)
    return end, letter_message(LETTERS.failed(work, end))


def arrival(number: int, *, card: bool = False, **fields: Any) -> Arrival:
    """Without a card, unless it is to have one."""
    arriving = stored.arrival(number, **fields)
    return arriving if card else replace(arriving, submission=replace(arriving.submission, card=None))


class _Desk:
    """An operator's desk: a store, and a log with its clock."""

    def __init__(self, engine: Engine, log: EmbeddedLog, clock: ManualClock, publisher: Publisher) -> None:
        self.recorder = Recorder(engine)
        self.clock = clock
        self.publisher = publisher
        self.letters = DeadLetterReader(log, TOPICS.dead_letters, Overview(engine))

    async def fail(self, number: int, *, account: str = "acc", reason: str = "pms_unavailable") -> str:
        """A submission fails; the id of its letter. A second passes."""
        (work,) = await self.recorder.ingest("w1", [arrival(number, account=account)], now=NOW)
        return await self.fail_again(work, reason=reason)

    async def fail_again(self, work: Work, *, reason: str = "pms_unavailable") -> str:
        end, message = failure(work, reason)
        await self.recorder.record("w1", [end], [])
        await self.set_aside(message)
        return end.event.event_id

    async def revive(self, number: int, revision: int, *, account: str = "acc") -> Work:
        """The letter of that failure is put back and taken in; the row that is pending again."""
        back = replace(arrival(number, account=account), replay_of=revision, deadline_at=DEADLINE)
        await self.recorder.ingest("w1", [back], now=NOW)
        (work,) = await self.recorder.claim("w1", account, range(16), now=NOW, limit=1)
        return work

    async def set_aside(self, message: Message) -> None:
        await self.publisher.publish(TOPICS.dead_letters, [message])
        await self.clock.advance(1)

    async def standings(self, wanted: LetterFilter | None = None) -> dict[str, LetterState]:
        return {letter.id: standing for letter, standing in await self.letters.find(wanted or LetterFilter())}


@pytest.fixture
async def desk(data_dir: Path) -> AsyncIterator[_Desk]:
    engine = open_engine(data_dir / "store.sqlite3")
    clock = ManualClock(NOW)
    log = EmbeddedLog(data_dir / "log.sqlite3", partitions=3, clock=clock)
    try:
        async with log.publisher() as publisher:
            desk = _Desk(engine, log, clock, publisher)
            await desk.recorder.renew("w1", seconds=30.0)
            yield desk
    finally:
        await engine.dispose()


def undecodable(partition: int, offset: int, value: bytes = b"no JSON", key: bytes = b"acc:1001") -> Message:
    delivery = ConsumedMessage(TOPICS.requests, partition, offset, 0, Message(key, value))
    return LETTERS.set_aside(delivery, Undecodable("not a submission"))


# --- reading and selecting ------------------------------------------------------------------------------------------------


async def test_without_letters_there_is_nothing(desk: _Desk) -> None:
    assert await desk.letters.find(LetterFilter()) == []


async def test_letters_are_told_newest_first_each_with_what_went_wrong(desk: _Desk) -> None:
    first = await desk.fail(1)
    await desk.set_aside(undecodable(2, 17))
    last = await desk.fail(3, account="other", reason="pms_unauthorized")
    found = await desk.letters.find(LetterFilter())
    assert [letter.id for letter, _ in found] == [last, "2:17", first]
    assert [standing for _, standing in found] == [LetterState.OPEN, LetterState.UNDECODABLE, LetterState.OPEN]
    assert row(*found[0]) == {
        "id": last,
        "at": "2027-01-01T00:00:02.000Z",
        "account": "other",
        "failureClass": "misconfigured",
        "reason": "pms_unauthorized",
        "attempts": 1,
        "requestId": arrival(3).submission.request_id,
        "standing": "open",
        "supersededBy": None,
    }
    assert row(*found[1])["requestId"] is None
    assert (found[1][0].account, found[1][0].detail) == ("acc", "not a submission")


async def test_a_letter_is_open_only_while_its_submission_is_failed_by_it(desk: _Desk) -> None:
    first = await desk.fail(1)
    work = await desk.revive(1, 1)
    assert await desk.standings() == {first: LetterState.REPLAYED}
    second = await desk.fail_again(work)
    assert await desk.standings() == {second: LetterState.OPEN, first: LetterState.REPLAYED}
    again = await desk.revive(1, 2)
    await desk.recorder.record("w1", [final(again)], [])
    assert await desk.standings() == {second: LetterState.REPLAYED, first: LetterState.REPLAYED}


async def test_a_letter_of_a_submission_that_is_not_in_the_store_is_not_open(desk: _Desk) -> None:
    (work,) = await desk.recorder.ingest("w1", [arrival(1)], now=NOW)
    elsewhere = replace(work, submission=replace(work.submission, request_id="rsv_elsewhere"))
    await desk.set_aside(failure(elsewhere)[1])
    assert await desk.standings() == {"rsv_elsewhere.1": LetterState.REPLAYED}


async def test_a_letter_that_was_written_twice_is_one(desk: _Desk) -> None:
    letter_id = await desk.fail(1)
    (letter, _), *_ = await desk.letters.find(LetterFilter())
    message = await desk.letters.message(letter)
    assert message is not None
    await desk.set_aside(message)
    await desk.set_aside(undecodable(0, 1))
    await desk.set_aside(undecodable(0, 1))
    assert await desk.standings() == {letter_id: LetterState.OPEN, "0:1": LetterState.UNDECODABLE}
    chosen = [letter for letter, _ in await desk.letters.find(LetterFilter())]
    assert len([each async for batch in desk.letters.messages(chosen) for each in batch]) == 2


async def test_letters_are_selected_by_account_class_time_and_id(desk: _Desk) -> None:
    one = await desk.fail(1)
    two = await desk.fail(2, account="other")
    three = await desk.fail(3, reason="pms_throttled")
    await desk.set_aside(undecodable(0, 1, key=b"other:7"))
    second = NOW + timedelta(seconds=1)
    for wanted, expected in (
        (LetterFilter(account="acc"), {one, three}),
        (LetterFilter(account="other"), {two, "0:1"}),
        (LetterFilter(account="other", failure_class="unavailable"), {two}),
        (LetterFilter(failure_class="throttled"), {three}),
        (LetterFilter(failure_class="undecodable"), {"0:1"}),
        (LetterFilter(since=second, until=second + timedelta(seconds=1)), {two}),
        (LetterFilter(since=second + timedelta(seconds=2)), {"0:1"}),
        (LetterFilter(until=second), {one}),
        (LetterFilter(ids=[one, "0:1", "none"]), {one, "0:1"}),
    ):
        assert set(await desk.standings(wanted)) == expected, wanted


async def test_very_many_letters_are_read_whole(desk: _Desk) -> None:
    ends: list[tuple[Ended, Message]] = []
    for first in range(1, 1202, 200):
        works = await desk.recorder.ingest("w1", [arrival(number) for number in range(first, first + 200)], now=NOW)
        ends += (failed := [failure(work) for work in works])
        await desk.recorder.record("w1", [end for end, _ in failed], [])
        await desk.publisher.publish(TOPICS.dead_letters, [message for _, message in failed])
    found = await desk.letters.find(LetterFilter())
    assert {letter.id for letter, _ in found} == {end.event.event_id for end, _ in ends}
    assert {standing for _, standing in found} == {LetterState.OPEN}


async def test_the_messages_of_letters_come_as_they_were_set_aside(desk: _Desk) -> None:
    for number in range(1, 6):
        await desk.fail(number)
    chosen = [letter for letter, _ in await desk.letters.find(LetterFilter())][1:4]
    messages = [each async for batch in desk.letters.messages(chosen) for each in batch]
    assert sorted(replayed(each).headers[-1][1].decode() for each in messages) == sorted(each.id for each in chosen)


@for_each(
    ("message", "letter_id", "account"),
    [
        (Message(b"", b""), "dlt:1:2", ""),
        (Message(b"\xff:1", b"[]"), "dlt:1:2", "\ufffd"),
        (Message(b"acc:5", b'{"integrationAccountId": 7}', (("dlt-event-id", b"7"),)), "dlt:1:2", "acc"),
        (Message(b"k", b"{}", (("dlt-event-id", b"rsv_1." + b"9" * 5000),)), "dlt:1:2", "k"),
        (Message(b"k", b'{"integrationAccountId": "a:b"}', (("dlt-event-id", b"rsv_1.2"),)), "rsv_1.2", "a:b"),
        (Message(b"k", b"{}", (("dlt-original-partition", b"3"), ("dlt-attempts", b"many"))), "dlt:1:2", "k"),
    ],
)
def test_a_message_of_somebody_elses_spoils_nothing(message: Message, letter_id: str, account: str) -> None:
    letter = letter_of(ConsumedMessage(TOPICS.dead_letters, 1, 2, 0, message))
    assert (letter.id, letter.account, letter.attempts) == (letter_id, account, 0)


@pytest.mark.parametrize("taken_at", [-(2**63), -1, 2**53, 2**63 - 1])
def test_whenever_the_log_was_told_that_it_was_written(taken_at: int) -> None:
    letter = letter_of(ConsumedMessage(TOPICS.dead_letters, 1, 2, taken_at, Message(b"k", b"{}")))
    assert row(letter, LetterState.UNDECODABLE)["at"]


async def test_a_letter_that_was_cut_or_that_the_log_would_not_take_is_not_to_be_put_back(desk: _Desk) -> None:
    whole = Message(b"acc:1", b"x" * MAX_MESSAGE_BYTES)
    await desk.set_aside(LETTERS.set_aside(ConsumedMessage(TOPICS.requests, 0, 7, 0, whole), Undecodable("no")))
    ((letter, standing),) = await desk.letters.find(LetterFilter(account="acc"))
    assert (letter.id, standing) == ("0:7", LetterState.TOO_LARGE)
    too_large = replace(whole, headers=(("dlt-event-id", b"rsv_1.1"),))
    assert not letter_of(
        ConsumedMessage(TOPICS.dead_letters, 1, 2, 0, replace(too_large, value=whole.value + b"x"))
    ).whole
    assert letter_of(ConsumedMessage(TOPICS.dead_letters, 1, 2, 0, Message(b"k", b"{}"))).whole


# --- showing --------------------------------------------------------------------------------------------------------------


def shown(message: Message) -> tuple[Letter, Message]:
    return letter_of(ConsumedMessage(TOPICS.dead_letters, 0, 0, 0, message)), message


def test_of_a_card_nothing_is_shown_but_that_it_is_gone() -> None:
    card = SealedCard("key-1", "c2VhbGVkLWNhcmQ=")
    fields: dict[str, Any] = {"cardDetails": {"cardNumber": "411111******1111"}, "notes": "é"}
    work = Work(1, 1, replace(arrival(1, **fields).submission, card=card), 0, iso(NOW), DEADLINE, (), 0)
    value = value_of(*shown(failure(work)[1]))
    assert value is not None
    assert (value["card"], value["reservation"]["cardDetails"]) == ("gone", "gone")
    assert value["reservation"]["notes"] == "é"
    assert not [part for part in ("411111", card.sealed, "key-1") if part in str(value)]
    assert CARD.sealed not in str(value)


async def test_a_letter_whose_card_is_gone_says_so_and_goes_back_by_name_alone(desk: _Desk) -> None:
    (work,) = await desk.recorder.ingest("w1", [arrival(1, card=True)], now=NOW)
    end, message = failure(work)
    await desk.recorder.record("w1", [end], [])
    await desk.publisher.publish(TOPICS.dead_letters, [message])
    found = await desk.letters.find(LetterFilter())
    assert [state for _, state in found] == [LetterState.CARD_GONE]
    assert not plan_replay(found, by_id=False).chosen
    assert plan_replay(found, by_id=True).chosen == found


def test_without_a_card_none_is_spoken_of() -> None:
    work = Work(1, 1, replace(arrival(1).submission, card=None), 0, iso(NOW), DEADLINE, (), 0)
    value = value_of(*shown(failure(work)[1]))
    assert value is not None
    assert value["card"] is None
    assert "cardDetails" not in value["reservation"]


def test_of_what_could_not_be_read_the_value_is_not_shown() -> None:
    assert value_of(*shown(undecodable(0, 0, b'{"cardNumber": "4111111111111111"}'))) is None
    assert value_of(*shown(Message(b"k", b"[]", (("dlt-event-id", b"rsv_1.2"),)))) is None


def test_headers_are_shown_as_text_and_none_is_left_out() -> None:
    message = Message(b"", b"", (("a", b"1"), ("odd", b"\xff\x1b"), ("a", b"2")))
    assert headers_of(message) == {"a": "1, 2", "odd": "\\xff\x1b"}
