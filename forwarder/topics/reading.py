"""Reads everything that a topic holds now, on any backend."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime

from forwarder.topics.port import ConsumedMessage, Log, LogUnavailable, Tail, TopicAdmin

_MAX_EMPTY_READS = 60  # in a row, of half a second each


async def read_to_end(
    log: Log, topic: str, *, since: datetime | None = None
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    """The messages that `topic` holds at the time of the call, in batches, each partition in order; nothing if there is no such
    topic. `since`: only from the first message of each partition that was appended at that time or later. Skips messages that are
    deleted meanwhile. Raises `LogUnavailable`, also if messages that the log should hold do not arrive."""
    async with log.admin() as admin:
        ends = {partition: held.stop for partition, held in (await admin.offsets(topic)).items() if held}
        if not ends:
            return
        left = dict(ends)
        async with log.tail(topic, from_beginning=True) as tail:
            if since is not None:
                (first,) = await admin.offsets_at(topic, [since])
                await tail.seek(first)
                left = {partition: end for partition, end in ends.items() if first.get(partition, 0) < end}
            async for found in _until(left, tail, admin, topic):
                yield found


async def read_last(
    log: Log, topic: str, count: int, *, before: Mapping[int, int] | None = None
) -> Sequence[ConsumedMessage]:
    """The last `count` messages of each partition of `topic`: of all, or of those before the given offsets, and then only in the
    partitions that are named. Raises as `read_to_end`."""
    async with log.admin() as admin:
        held = await admin.offsets(topic)
        ends = {
            part: kept.stop if before is None else min(before.get(part, 0), kept.stop) for part, kept in held.items()
        }
        firsts = {part: max(held[part].start, end - count) for part, end in ends.items()}
        left = {part: end for part, end in ends.items() if firsts[part] < end}
        if not left:
            return []
        async with log.tail(topic) as tail:
            await tail.seek({part: firsts[part] for part in left})
            return [each async for found in _until(left, tail, admin, topic) for each in found]


async def _until(
    ends: Mapping[int, int], tail: Tail, admin: TopicAdmin, topic: str
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    """The messages of `tail` before `ends`, in the partitions that these name."""
    left, empty_reads = dict(ends), 0
    while left:
        batch = await tail.receive(max_messages=500, wait_seconds=0.5)
        empty_reads = 0 if batch else empty_reads + 1
        if empty_reads == _MAX_EMPTY_READS:
            raise LogUnavailable(f"{topic}: the last messages of {len(left)} of its partitions did not come")
        reached = {each.partition: each.offset + 1 for each in batch}
        if not batch:
            # Messages that are missing were deleted during the read, or the remaining records are no messages.
            reached, held = dict(await tail.positions()), await admin.offsets(topic)
            left = {part: end for part, end in left.items() if part in held and held[part].start < end}
        left = {part: end for part, end in left.items() if reached.get(part, 0) < end}
        if found := [each for each in batch if each.offset < ends.get(each.partition, 0)]:
            yield found
