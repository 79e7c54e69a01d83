"""Reading a whole topic: everything that it holds now, on any backend, and no waiting for what may come.

Touches nothing but the log's parts.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime

from forwarder.topics.port import ConsumedMessage, Log, LogUnavailable, TopicAdmin

_AT_A_TIME = 500
_WAIT_SECONDS = 0.5
_SILENCES = 60  # of so many seconds each, in a row


async def read_to_end(
    log: Log, topic: str, *, since: datetime | None = None
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    """What `topic` holds at the call, a batch at a time, of each partition in order; nothing where there is no such topic.
    `since`: of each partition only from the first message on that the log took at that moment or later.

    What is pruned meanwhile is passed over. Raises `LogUnavailable`, also where what the log said it holds does not come.
    """
    async with log.admin() as admin:
        ends = {partition: held.stop for partition, held in (await admin.offsets(topic)).items() if held}
        if not ends:
            return
        left = dict(ends)
        silences = 0
        async with log.tail(topic, from_beginning=True) as tail:
            if since is not None:
                first = await tail.seek_to_time(since)
                left = {partition: end for partition, end in ends.items() if first.get(partition, 0) < end}
            while left:
                batch = await tail.receive(max_messages=_AT_A_TIME, wait_seconds=_WAIT_SECONDS)
                silences = 0 if batch else silences + 1
                if silences == _SILENCES:
                    raise LogUnavailable(f"{topic}: the last messages of {len(left)} of its partitions did not come")
                left = _after(left, batch) if batch else await _still_held(left, admin, topic)
                if found := [each for each in batch if each.offset < ends.get(each.partition, 0)]:
                    yield found


def _after(left: Mapping[int, int], batch: Sequence[ConsumedMessage]) -> dict[int, int]:
    """The ends that are not reached with `batch`."""
    reached = {each.partition: each.offset + 1 for each in batch}
    return {partition: end for partition, end in left.items() if reached.get(partition, 0) < end}


async def _still_held(left: Mapping[int, int], admin: TopicAdmin, topic: str) -> dict[int, int]:
    """The ends before which there still is something: the rest was pruned while it was read."""
    held = await admin.offsets(topic)
    return {partition: end for partition, end in left.items() if partition in held and held[partition].start < end}
