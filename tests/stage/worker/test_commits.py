"""When the offsets of ingested messages are committed: they gather, and a push that waits for one has it at once."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from forwarder.topics.port import ConsumedMessage, LogUnavailable, Message
from forwarder.worker.intake import Commits
from tests.support.memory.clock import ManualClock, settle


class _Consumer:
    """Commits when it may, and raises `error`."""

    def __init__(self) -> None:
        self.commits: list[dict[int, int]] = []
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None

    async def commit(self, messages: Sequence[ConsumedMessage]) -> None:
        await self.may.wait()
        if self.error is not None:
            raise self.error
        self.commits.append({each.partition: each.offset for each in messages})


class _Site:
    """`Commits` of one consumer, on a clock that is set by hand."""

    def __init__(self) -> None:
        self.clock, self.consumer = ManualClock(), _Consumer()
        self.commits = Commits(self.clock)

    async def ingest(self, *places: tuple[int, int], by: str = "") -> None:
        self.commits.expect([by or f"{partition}-{offset}" for partition, offset in places])
        messages = [ConsumedMessage("requests", *place, 0, Message(b"", b"")) for place in places]
        await self.commits.note(cast("Any", self.consumer), messages)
        await settle()


async def test_offsets_gather_for_half_a_second() -> None:
    site = _Site()
    await site.ingest((0, 1), (1, 7), (0, 0))
    assert site.consumer.commits == [{0: 1, 1: 7}]  # nothing was committed before
    await site.ingest((0, 2))
    await site.ingest((1, 8))
    assert len(site.consumer.commits) == 1
    await site.clock.advance(0.6)
    await site.ingest((0, 3))
    assert site.consumer.commits[1:] == [{0: 3, 1: 8}]


async def test_a_push_that_waits_has_its_message_committed_at_once() -> None:
    site = _Site()
    await site.ingest((0, 0))
    await site.ingest((0, 1))
    await site.commits.committed("0-1")
    assert site.consumer.commits == [{0: 0}, {0: 1}]
    await asyncio.wait_for(site.commits.committed("0-1"), 1.0)
    await asyncio.wait_for(site.commits.committed("of another worker"), 1.0)


async def test_a_push_waits_for_the_whole_batch_to_be_stored() -> None:
    site = _Site()
    await site.ingest((0, 0))
    site.commits.expect(["0-1"])  # its row is in the store and in a queue; the rest of the batch is not
    waiting = asyncio.create_task(site.commits.committed("0-1"))
    await settle()
    assert not waiting.done()
    assert site.consumer.commits == [{0: 0}]
    await site.ingest((0, 1), (0, 2))
    await waiting
    assert site.consumer.commits[1:] == [{0: 2}]


async def test_what_comes_during_a_commit_is_in_the_next() -> None:
    site = _Site()
    site.consumer.may.clear()
    await site.ingest((0, 0))
    await site.ingest((0, 1))
    waiting = [asyncio.create_task(site.commits.committed(each)) for each in ("0-0", "0-1")]
    await settle()
    assert not any(each.done() for each in waiting)
    site.consumer.may.set()
    await asyncio.gather(*waiting)
    assert site.consumer.commits == [{0: 0}, {0: 1}]


async def test_pushes_go_on_while_the_log_takes_no_commits_and_intake_learns_of_it() -> None:
    site = _Site()
    await site.ingest((0, 0))
    site.consumer.error = LogUnavailable("the log is away")
    await site.ingest((0, 1))
    await asyncio.wait_for(site.commits.committed("0-1"), 1.0)
    with pytest.raises(LogUnavailable, match="away"):
        await site.ingest((0, 2))
    site.consumer.error = None
    await site.ingest((0, 3))


async def test_the_rest_is_committed_before_partitions_are_given_up() -> None:
    site = _Site()
    await site.ingest((0, 0))
    await site.ingest((0, 1))
    site.commits.expect(["0-2"])
    waiting = asyncio.create_task(site.commits.committed("0-2"))
    await settle()
    await site.commits.leave()
    assert site.consumer.commits == [{0: 0}, {0: 1}]
    await asyncio.wait_for(waiting, 1.0)  # it finds that the row is another worker's now
    site.consumer.error = LogUnavailable("the log is away")
    await site.ingest((0, 5))
    await site.commits.leave()
    await site.ingest((0, 6))


async def test_pushes_go_on_after_a_commit_failed_for_a_bug() -> None:
    site = _Site()
    await site.ingest((0, 0))
    site.consumer.error = ValueError("a bug")
    await site.ingest((0, 1))
    site.commits.expect(["0-2"])
    waiting = asyncio.create_task(site.commits.committed("0-2"))
    await settle()
    assert not waiting.done()
    with pytest.raises(ValueError, match="a bug"):
        await site.commits.leave()
    await asyncio.wait_for(waiting, 1.0)
