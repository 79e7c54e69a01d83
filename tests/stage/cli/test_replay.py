"""Dead letters on their way back: in order, at a rate, each counted once the log has it, whatever comes between."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from forwarder.operate.submissions.dead_letters import Replay
from forwarder.topics.codec import Undecodable, replayed
from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message, Topics
from forwarder.worker.outcome.recorder import DeadLetterWriter
from tests.support.log.signers import SIGNER
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.log import MemoryLog

TOPICS = Topics()
LETTERS = DeadLetterWriter(TOPICS, "workers")


async def in_batches(messages: Sequence[Message], size: int) -> AsyncIterator[Sequence[Message]]:
    for first in range(0, len(messages), size):
        yield messages[first : first + size]


def some_letters(count: int) -> list[Message]:
    """Letters, numbered by their values."""
    places = (ConsumedMessage(TOPICS.requests, 0, each, 0, Message(b"acc:1001", b"%d" % each)) for each in range(count))
    return [LETTERS.set_aside(place, Undecodable("not a submission")) for place in places]


async def test_letters_go_back_in_their_order_at_the_rate() -> None:
    clock, told = ManualClock(), list[int]()
    log, letters = MemoryLog(clock), some_letters(120)
    replay = Replay(log, TOPICS.requests, SIGNER, clock, rate=50.0, stop=asyncio.Event())
    running = asyncio.create_task(replay.run(in_batches(letters, 32), told.append))
    await settle()
    at_once = 5
    for tenth in range(30):
        assert len(log.topics[TOPICS.requests]) <= 5 * tenth + at_once
        await clock.advance(0.1)
    await running
    assert log.topics[TOPICS.requests] == [replayed(letter) for letter in letters]
    assert (replay.put_back, sum(told)) == (120, 120)


async def test_what_an_outage_held_up_is_not_made_up_for() -> None:
    clock = ManualClock()
    log = MemoryLog(clock)
    log.acknowledging.clear()
    replay = Replay(log, TOPICS.requests, SIGNER, clock, rate=1.0, stop=asyncio.Event())
    running = asyncio.create_task(replay.run(in_batches(some_letters(5), 5), lambda _: None))
    await settle()
    await clock.advance(60.0)
    log.acknowledging.set()
    await settle()
    await clock.advance(1.5)
    assert replay.put_back <= 3
    await clock.advance(10.0)
    await running
    assert replay.put_back == 5


async def test_stopped_in_the_middle_it_knows_what_it_put_back() -> None:
    clock, stop = ManualClock(), asyncio.Event()
    log = MemoryLog(clock)
    replay = Replay(log, TOPICS.requests, SIGNER, clock, rate=10.0, stop=stop)
    running = asyncio.create_task(replay.run(in_batches(some_letters(100), 100), lambda _: None))
    await settle()
    await clock.advance(1.05)
    stop.set()
    await running
    assert replay.put_back == len(log.topics[TOPICS.requests]) == 11


async def test_an_outage_in_the_middle_comes_out_with_what_was_put_back_before() -> None:
    clock = ManualClock()
    log = MemoryLog(clock)
    replay = Replay(log, TOPICS.requests, SIGNER, clock, rate=10.0, stop=asyncio.Event())

    def away(_: int) -> None:
        log.away = replay.put_back == 3

    running = asyncio.create_task(replay.run(in_batches(some_letters(10), 10), away))
    await settle()
    await clock.advance(5.0)
    with pytest.raises(LogUnavailable):
        await running
    assert replay.put_back == 3
