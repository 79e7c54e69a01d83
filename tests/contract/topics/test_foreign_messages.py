"""Anybody may write to a topic: whatever it is, everybody who reads there goes on, and what comes after it is worked on."""

import asyncio
import itertools
import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from forwarder.operate.output import json_line
from forwarder.operate.results import EventFilter, ReadRange, print_events
from forwarder.operate.submissions.dead_letters import (
    DeadLetterReader,
    LetterFilter,
    LetterState,
    Replay,
    headers_of,
    letter_of,
    plan_replay,
    row,
    value_of,
)
from forwarder.process.clock import SystemClock
from forwarder.reservation.request import SealedCard
from forwarder.store.engine import open_engine
from forwarder.store.lists.overview import Overview
from forwarder.topics.codec import MessageSigner, Undecodable, encode_cancellation
from forwarder.topics.port import ConsumedMessage, Log, Message, Topics, read_to_end
from forwarder.worker.outcome.recorder import DeadLetterWriter
from tests.contract.topics.foreign_site import WORKSPACE, foreign_site
from tests.support.backends import Backend, only, slow_on
from tests.support.log.foreign_batches import STANDS_FOR, Raw, write_batch
from tests.support.log.foreign_messages import LARGE, every_odd_header, every_odd_member, foreign_to
from tests.support.log.signers import SIGNER
from tests.support.profile import PROFILE, some
from tests.support.worker.worker_bench import cancellation, fresh, message_of
from tools.contracts.messages import result_messages

pytestmark = pytest.mark.usefixtures("no_log_lines")

_REQUEST_ID: Final = re.compile(rb"rsv_[0-9]{32}")
AT_A_TIME: Final = 400
ONE_IN: Final = 8
"""For a change. It has no divisor in common with the number of odd values (27) or contents (7), so each of them is still used."""
EXAMPLES: Final = {"embedded": 5, "distributed": 3} if PROFILE == "change" else {"embedded": 15, "distributed": 5}


def _result() -> Message:
    """An event that the endpoint of these tests takes."""
    example = result_messages()[0].example
    return Message(
        example.key,
        example.value.replace(b'"workspaceId":"', b'"workspaceId":"%s","was":"' % WORKSPACE.encode()),
        example.headers,
    )


def _letter() -> Message:
    place = ConsumedMessage("reservations.requests", 0, 7, 0, message_of(fresh(1)))
    return DeadLetterWriter(Topics(), "workers").set_aside(place, Undecodable("not a submission"))


def _submission() -> Message:
    return message_of(fresh(1, numberOfGuests=2, notes="é"))


def _with_card() -> Message:
    """Of another account: cards that nobody can open are a failure of their account, which is left alone for a while then."""
    return message_of(replace(fresh(2, account="other"), card=SealedCard("key-1", "c2VhbGVk"), deadline_seconds=60))


def _cancellation() -> Message:
    return encode_cancellation(cancellation(3))


def each_of_its_own(messages: Sequence[Message]) -> list[Message]:
    """About submissions of their own, as far as they say so: of those that come again the store looks at nothing but their ids."""
    own = (b"rsv_%032d" % number for number in itertools.count(10_000))
    return [replace(each, value=_REQUEST_ID.sub(next(own), each.value)) for each in messages]


def odd(message: Message) -> list[Message]:
    """With each odd value for each of its members, and each odd content for each of its headers; for a change, one in `ONE_IN`."""
    return [*each_of_its_own(some(every_odd_member(message), ONE_IN)), *some(every_odd_header(message), ONE_IN)]


requests = st.lists(foreign_to(_submission, _with_card, _cancellation), min_size=1, max_size=6)
results = st.lists(foreign_to(_result), min_size=1, max_size=4)
letters = st.lists(foreign_to(_letter, _submission), min_size=1, max_size=30)


@pytest.fixture
def topics() -> Topics:
    return Topics(f"{uuid.uuid4().hex[:12]}.")


def bounded(examples: int) -> settings:
    """The same examples each time; the first that fails is shown as it was drawn."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # who is stopped by one message cannot be asked about a smaller one
        suppress_health_check=list(HealthCheck),
    )


@slow_on("embedded")
def test_whatever_is_written_beside_them_reservations_are_made_and_told(
    backend: Backend, log: Log, topics: Topics, migrated_url: str | Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with asyncio.Runner() as runner:
        opened = foreign_site(log, topics, migrated_url)
        site = runner.run(opened.__aenter__())

        @bounded(EXAMPLES[backend])
        @given(requests=requests, results=results)
        def go_on(requests: Sequence[Message], results: Sequence[Message]) -> None:
            runner.run(site.goes_on(requests=requests, results=results))

        async def sweep() -> None:
            requests = [Message(b"k", b"x" * LARGE), message_of(fresh(4, notes="x" * (LARGE - 1_200)))]
            for message in (_submission(), _with_card(), _cancellation()):
                requests += odd(message)
            results = odd(_result())
            for first in range(0, len(requests), AT_A_TIME):
                part = slice(first, first + AT_A_TIME)
                await site.goes_on(requests=requests[part], results=results[part])

        async def look_back() -> None:
            await site.goes_on()
            assert site.read == site.published
            for as_json in (True, False):
                stretch = ReadRange(beginning=True, follow=False)
                await print_events(log, topics.results, stretch, EventFilter(), SystemClock(), as_json=as_json)
                if as_json:
                    for line in capsys.readouterr().out.splitlines():
                        json.loads(line, parse_constant=pytest.fail)

        try:
            runner.run(sweep())
            go_on()
            runner.run(look_back())
        finally:
            runner.run(opened.__aexit__(None, None, None))


async def test_what_nobody_signed_is_neither_booked_nor_cancelled_and_holds_up_nothing(
    log: Log, topics: Topics, migrated_url: str | Path
) -> None:
    """Nor is what somebody changed who reads the topic: another body under an id that no worker has taken in yet."""
    signed, stranger = SIGNER.signed(message_of(fresh(1))), MessageSigner(b"another key, 16+")
    unsigned = [
        message_of(fresh(2)),
        stranger.signed(message_of(fresh(3))),
        replace(signed, value=signed.value.replace(b'"totalPrice":300.5', b'"totalPrice":3.5')),
        Message(signed.key, encode_cancellation(cancellation(1)).value, signed.headers),
        encode_cancellation(cancellation(1)),
    ]
    async with foreign_site(log, topics, migrated_url, SIGNER) as site:
        await site.goes_on(requests=unsigned)
        await site.goes_on(requests=[signed])
        for _ in range(4):  # of either partition
            await site.goes_on()
        assert site.read == site.published
        stored = [await site.reader.submission("acc", fresh(number).request_id) for number in (1, 2, 3)]
        assert [each and each.status for each in stored] == ["CONFIRMED", None, None]
        letters = [letter async for batch in read_to_end(log, topics.dead_letters) for letter in map(letter_of, batch)]
        assert {letter.failure_class for letter in letters} <= {"forged", "undecodable"}
        assert sum(letter.failure_class == "forged" for letter in letters) == 4
        assert len(letters) == 5
        desk = DeadLetterReader(log, topics.dead_letters, site.overview)
        forged = [letter.id for letter in letters if letter.failure_class == "forged"]
        plan = plan_replay(await desk.find(LetterFilter(ids=forged)), by_id=True)
        assert not plan.chosen


def test_whatever_is_among_the_letters_they_are_all_shown_and_put_back_as_far_as_they_can_be(
    backend: Backend, log: Log, topics: Topics, migrated_url: str | Path
) -> None:
    written: list[Message] = []

    @bounded(EXAMPLES[backend])
    @given(letters=letters)
    def write(letters: Sequence[Message]) -> None:
        written.extend(letters[:5])

    written += [*every_odd_header(_letter()), *every_odd_member(_letter())]

    async def read() -> None:
        engine = open_engine(migrated_url)
        async with log.admin() as admin:
            await admin.create(dict.fromkeys(topics.all(), 2))
        async with log.publisher() as publisher:
            for message in written:
                await publisher.publish(topics.dead_letters, [message])
            desk = DeadLetterReader(log, topics.dead_letters, Overview(engine))
            found = await desk.find(LetterFilter())
            by_place = {letter.place: letter for letter, _ in found}
            assert all(json_line(row(letter, standing)) for letter, standing in found)
            async for batch in read_to_end(log, topics.dead_letters):
                for each in batch:
                    if (told := by_place.get((each.partition, each.offset))) is not None:
                        assert json_line([headers_of(each.message), value_of(told, each.message)])
            chosen = [letter for letter, standing in found if standing is not LetterState.TOO_LARGE]
            replay = Replay(publisher, topics.requests, SIGNER, SystemClock(), rate=100_000.0, stop=asyncio.Event())
            await replay.run(desk.messages(chosen), lambda _: None)
            assert replay.put_back == len(chosen)
        await engine.dispose()

    write()
    asyncio.run(read())


@only("distributed")
def test_what_other_programs_alone_can_write_stops_nobody_either(
    log: Log, topics: Topics, migrated_url: str, kafka_bootstrap: str
) -> None:
    """Nulls, names of headers that are no UTF-8, and a value larger than what we write."""
    batches: list[Sequence[Raw]] = [
        [(None, b"{}", [("h", None), ("ce_type", None), ("ce_subject", None), ("", None)]), (b"k", None, [])],
        [(b"k", b"x" * 1_040_000, [])],
        [(b"k", b"1", []), (b"k", b"2", [(STANDS_FOR, b"x")]), (b"k", b"3", [])],
    ]

    async def stand() -> None:
        async with foreign_site(log, topics, migrated_url) as site:
            for batch in batches:
                for topic in (topics.requests, topics.results):
                    await write_batch(kafka_bootstrap, topic, 0, batch)
                    await write_batch(kafka_bootstrap, topic, 1, batch)
                for _ in range(4):  # of either partition
                    await site.goes_on()
            assert site.read == site.published + 2 * 6

    asyncio.run(stand())
