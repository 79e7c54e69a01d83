"""What only the embedded log does: one consumer for each group, several processes, kill -9, trouble with the file, retention."""

import asyncio
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from forwarder.topics.embedded.file import MAX_READ_BYTES
from forwarder.topics.embedded.log import EmbeddedLog, EmbeddedWriter
from forwarder.topics.port import ConsumedMessage, GroupBusy, LogUnavailable, Message, read_to_end
from tests.support.log.messages import SOON, ignore_partitions, lag, numbered, numbers, take, until_published
from tests.support.memory.clock import ManualClock

TOPIC = "test"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.sqlite3"


@pytest.fixture
def log(file: Path) -> EmbeddedLog:
    return EmbeddedLog(file)


async def everything(log: EmbeddedLog, topic: str = TOPIC) -> list[ConsumedMessage]:
    async with log.tail(topic, from_beginning=True) as tail:
        return list(await tail.receive(max_messages=1_000_000, wait_seconds=0))


@asynccontextmanager
async def child(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def lines(process: asyncio.subprocess.Process, count: int) -> list[int]:
    assert process.stdout is not None
    async with asyncio.timeout(SOON):
        return [int(await process.stdout.readline()) for _ in range(count)]


async def test_a_topic_is_made_at_its_first_use(log: EmbeddedLog) -> None:
    async with log.publisher() as publisher, log.tail("tailed"), log.admin() as admin:
        await publisher.publish("published", numbered(1))
        async with log.consumer("consumed", group="g", on_partitions=ignore_partitions):
            assert await admin.list() == {"consumed": 8, "published": 8, "tailed": 8}


async def test_a_second_consumer_of_a_group_is_refused(log: EmbeddedLog, file: Path) -> None:
    async with log.consumer(TOPIC, group="workers", on_partitions=ignore_partitions):
        for other in (log, EmbeddedLog(file)):
            with pytest.raises(GroupBusy, match="workers"):
                await other.consumer(TOPIC, group="workers", on_partitions=ignore_partitions).__aenter__()
        async with (
            log.consumer("another", group="workers", on_partitions=ignore_partitions),
            log.consumer(TOPIC, group="others", on_partitions=ignore_partitions),
        ):
            pass
    async with log.consumer(TOPIC, group="workers", on_partitions=ignore_partitions):
        pass


CONSUMING = f"""
import asyncio, sys
from pathlib import Path
from forwarder.topics.embedded.log import EmbeddedLog
async def told(partitions): print(len(partitions), flush=True)
async def main():
    async with EmbeddedLog(Path(sys.argv[1])).consumer({TOPIC!r}, group="workers", on_partitions=told):
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def test_the_place_of_a_consumer_that_is_killed_is_free_at_once(log: EmbeddedLog, file: Path) -> None:
    async with child("-c", CONSUMING, str(file)) as process:
        assert await lines(process, 1) == [8]
        with pytest.raises(GroupBusy, match="workers"):
            await log.consumer(TOPIC, group="workers", on_partitions=ignore_partitions).__aenter__()
        process.kill()
        await process.wait()
        async with log.consumer(TOPIC, group="workers", on_partitions=ignore_partitions):
            pass


async def test_other_processes_publish_beside_and_are_heard_soon(log: EmbeddedLog, file: Path) -> None:
    async with (
        log.publisher() as publisher,
        log.consumer(TOPIC, group="g", on_partitions=ignore_partitions) as consumer,
        child("-m", "tests.contract.topics.publishing_child", str(file), TOPIC, "1000", "4") as process,
    ):
        received = await take(consumer, 100)
        await publisher.publish(TOPIC, numbered(100))
        process.kill()
        await process.wait()
        received += await take(consumer, len(await everything(log)) - len(received))
    assert {*range(100)} < {*numbers(received)}
    assert len(received) == len({*numbers(received)})


@pytest.mark.parametrize("writers", [1, 32])
async def test_each_message_acknowledged_before_kill_9_is_there_once(
    log: EmbeddedLog, file: Path, writers: int
) -> None:
    acknowledged: list[int] = []
    for turn in range(4):
        first = turn * 1_000_000
        arguments = ("-m", "tests.contract.topics.publishing_child", str(file), TOPIC, str(first), str(writers))
        async with child(*arguments) as process:
            acknowledged += await lines(process, 300 + 7 * turn)
            process.send_signal(signal.SIGKILL)
            rest, _ = await process.communicate()
            acknowledged += [int(line) for line in rest.split(b"\n")[:-1]]
    stored = await everything(log)
    assert {*acknowledged} <= {*numbers(stored)}
    assert len(stored) == len({*numbers(stored)})
    for partition in range(8):
        offsets = [each.offset for each in stored if each.partition == partition]
        assert offsets == list(range(len(offsets)))


@contextmanager
def no_room_on_the_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: as far as SQLite can tell, the disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_is_unavailable_and_nothing_acknowledged_is_lost(log: EmbeddedLog, file: Path) -> None:
    acknowledged, refusal = 0, ""
    async with log.publisher() as publisher:
        with no_room_on_the_disk(400_000):
            try:
                for turn in range(200):
                    await publisher.publish(TOPIC, [Message(b"key", b"%d" % turn + b" " * 10_000)])
                    acknowledged += 1
            except LogUnavailable as full:
                refusal = str(full)
        assert "disk" in refusal
        assert not await publisher.ready()
        await publisher.publish(TOPIC, [Message(b"key", b"1000")])
        assert await publisher.ready()
    assert acknowledged > 10
    assert [*range(acknowledged), 1000] == numbers(await everything(EmbeddedLog(file)))


async def test_a_file_that_somebody_keeps_locked_is_unavailable_in_time(file: Path) -> None:
    log = EmbeddedLog(file, publish_timeout_seconds=0.3)
    async with log.publisher() as publisher, log.tail(TOPIC, from_beginning=True) as tail:
        await publisher.publish(TOPIC, numbered(1))
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("begin immediate")
            with pytest.raises(LogUnavailable, match="within"):
                await publisher.publish(TOPIC, numbered(1, first=1))
            assert not await publisher.ready()
            assert numbers(await take(tail, 1)) == [0]  # reading goes on
        await until_published(publisher, TOPIC, numbered(1, first=2))
        assert numbers(await take(tail, 1)) == [2]  # what was given up before it began was not done


def strange_file(file: Path, content: bytes | str) -> EmbeddedLog:
    file.parent.mkdir()
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        with closing(sqlite3.connect(file)) as other:
            other.execute("pragma user_version = 99")
    return EmbeddedLog(file)


@pytest.mark.parametrize("content", [b"this is no database, and long enough to be read as one" * 20, "another version"])
async def test_a_file_that_is_not_ours_is_unavailable(file: Path, content: bytes | str) -> None:
    log = strange_file(file, content)
    for part in (log.publisher(), log.tail(TOPIC), log.consumer(TOPIC, group="g", on_partitions=ignore_partitions)):
        with pytest.raises(LogUnavailable):
            await part.__aenter__()


async def test_a_directory_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    log = EmbeddedLog(tmp_path / "taken" / "log.sqlite3")
    for part in (log.publisher(), log.consumer(TOPIC, group="g", on_partitions=ignore_partitions)):
        with pytest.raises(LogUnavailable):
            await part.__aenter__()


async def test_a_receive_holds_few_large_messages_and_the_next_has_the_rest(log: EmbeddedLog) -> None:
    async with log.admin() as admin:
        await admin.create({TOPIC: 2})
    async with log.publisher() as publisher:
        for number in range(12):
            await publisher.publish(TOPIC, [Message(b"one" if number % 2 else b"a", b"%7d" % number * 100_000)])
    received: list[ConsumedMessage] = []
    async with log.tail(TOPIC, from_beginning=True) as tail:
        while len(received) < 12:
            batch = await tail.receive(max_messages=500, wait_seconds=SOON)
            assert 0 < sum(each.message.size for each in batch) < 2 * 2 * MAX_READ_BYTES
            received += batch
    assert {(each.partition, each.offset) for each in received} == {(part, at) for part in (0, 1) for at in range(6)}


async def test_old_messages_go_when_every_group_is_past_them(file: Path) -> None:
    clock = ManualClock()
    log = EmbeddedLog(file, clock=clock, retention=timedelta(days=7))
    async with (
        log.publisher() as publisher,
        log.consumer(TOPIC, group="quick", on_partitions=ignore_partitions) as quick,
        log.consumer(TOPIC, group="slow", on_partitions=ignore_partitions) as slow,
    ):
        await publisher.publish(TOPIC, numbered(1_200))
        await quick.commit(await take(quick, 1_200))
        read_slowly = await take(slow, 1_200)
        await slow.commit(read_slowly[:700])

        await clock.advance(timedelta(days=8).total_seconds())
        await publisher.publish(TOPIC, numbered(10, first=5_000))
        await pruned_down_to(log, [*numbers(read_slowly[700:]), *range(5_000, 5_010)])

        await slow.commit(read_slowly[700:])
        await clock.advance(timedelta(hours=1).total_seconds())
        await publisher.publish(TOPIC, numbered(10, first=6_000))
        await pruned_down_to(log, [*range(5_000, 5_010), *range(6_000, 6_010)])
        assert sum((await lag(log, TOPIC, "slow")).values()) == 20
        assert numbers(await take(slow, 20)) == [*range(5_000, 5_010), *range(6_000, 6_010)]


async def test_offsets_are_not_used_again_after_everything_was_pruned(file: Path) -> None:
    clock = ManualClock()
    log = EmbeddedLog(file, clock=clock, retention=timedelta(days=7), partitions=1)
    async with log.publisher() as publisher:
        await publisher.publish(TOPIC, numbered(20))
        await clock.advance(timedelta(days=8).total_seconds())
        await publisher.publish("another", numbered(1))
        await pruned_down_to(log, [])
        await publisher.publish(TOPIC, numbered(1, first=20))
    assert [each.offset for each in await everything(log)] == [20]


async def test_what_was_pruned_is_not_said_to_be_held_and_not_waited_for(file: Path) -> None:
    clock = ManualClock()
    log = EmbeddedLog(file, clock=clock, retention=timedelta(days=7), partitions=1)
    async with log.publisher() as publisher, log.admin() as admin:
        await publisher.publish(TOPIC, numbered(20))
        await clock.advance(timedelta(days=5).total_seconds())
        await publisher.publish(TOPIC, numbered(5, first=20))
        await clock.advance(timedelta(days=3).total_seconds())
        await publisher.publish("another", numbered(1))
        await pruned_down_to(log, [*range(20, 25)])
        assert await admin.offsets(TOPIC) == {0: range(20, 25)}
        assert [numbers(batch) async for batch in read_to_end(log, TOPIC)] == [[*range(20, 25)]]
        await clock.advance(timedelta(days=7).total_seconds())
        await publisher.publish("another", numbered(1))
        await pruned_down_to(log, [])
        assert await admin.offsets(TOPIC) == {0: range(25, 25)}
        assert [batch async for batch in read_to_end(log, TOPIC)] == []


async def test_what_is_pruned_while_a_topic_is_read_is_passed_over(file: Path) -> None:
    clock = ManualClock()
    log = EmbeddedLog(file, clock=clock, retention=timedelta(days=7), partitions=1)
    async with log.publisher() as publisher, asyncio.timeout(SOON):
        await publisher.publish(TOPIC, numbered(1_200))
        read: list[int] = []
        async for batch in read_to_end(log, TOPIC):
            if not read:
                await clock.advance(timedelta(days=8).total_seconds())
                await publisher.publish("another", numbered(1))
                await pruned_down_to(log, [])
            read += numbers(batch)
    assert read == [*range(len(read))]
    assert 0 < len(read) < 1_200


class LeapingClock(ManualClock):
    """Three days go by each time that somebody looks what day it is."""

    def now(self) -> datetime:
        moment = super().now()
        self._elapsed += timedelta(days=3).total_seconds()
        return moment


async def test_what_grows_old_while_it_is_pruned_does_not_wait_for_longer_than_the_rest(file: Path) -> None:
    clock = LeapingClock()
    writer = EmbeddedWriter(EmbeddedLog(file, clock=clock))
    await writer.create(TOPIC)
    await writer.close()
    assert writer.prune_at <= clock.monotonic()


async def pruned_down_to(log: EmbeddedLog, left: list[int]) -> None:
    """Fails unless that is soon all there is. Pruning goes on beside publishing, and nobody is told of its end."""
    async with asyncio.timeout(SOON):
        while numbers(await everything(log)) != sorted(left):
            await asyncio.sleep(0.01)
