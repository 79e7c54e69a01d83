"""Whether the topics have all that the deployment took from them, and whether it received all that they had: topics that were lost,
made anew, or kept too short did not.

Nothing is booked twice by that: the store knows what it ingested. What was accepted and not ingested yet is gone, and somebody has
to hear of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from forwarder.observability import metrics
from forwarder.operations.audit import Audit
from forwarder.process.clock import Clock, iso
from forwarder.store.submissions.places import NotedGap, SqlPlaces
from forwarder.topics.port import Log, LogGap, moment_of
from forwarder.topics.publishing import partition_of

_log = structlog.get_logger(__name__)

_FIRST_KEPT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages that a topic lost before its group received them. `missing`: how many; None where nobody can say. They were
    published after `since` and before `until`, as far as that is known. `known`: request ids of those that the store has anyway."""

    topic: str
    partition: int
    missing: int | None
    since: datetime | None
    until: datetime | None
    noted_at: datetime
    known: Sequence[str]


@dataclass(frozen=True, slots=True)
class TopicLost:
    """`beyond`: how many of the newest submissions were where the topic has nothing yet. `taken_in_until`: when the last of them
    was accepted; `kept_from`: when the topic's first message was appended, None where it has none. What was accepted between is
    not known to be anywhere. `gaps`: what was lost before it was received. `unowned`: rows with work left to do, of partitions that
    the topic does not have any more; a worker moves them within half a minute."""

    beyond: int
    taken_in_until: datetime | None
    kept_from: datetime | None
    gaps: Sequence[LostMessages] = ()
    unowned: int = 0


class TopicCheck:
    """Of one deployment's topics; `topic` is that of the requests. Raises `LogUnavailable`, `StoreUnavailable`."""

    def __init__(self, log: Log, topic: str, store: SqlPlaces, clock: Clock) -> None:
        self._log = log
        self._topic = topic
        self._store = store
        self._clock = clock

    async def lost(self, *, timed: bool = True) -> TopicLost | None:
        """What is lost; None where nothing is. Where it is `timed`, the topics are read for when that was."""
        beyond, unowned, held = await self._compared()
        gaps = [await self._lost_messages(each, timed=timed) for each in await self._store.gaps()]
        if not (beyond or unowned or gaps):
            return None
        kept_from = None
        if timed and beyond and any(held.values()):
            kept_from = await self._appended_at(self._topic, None, 0)
        return TopicLost(len(beyond), max(beyond, default=None), kept_from, gaps, unowned)

    async def in_words(self) -> Mapping[str, Any]:
        """What the requests topic lost, for the log; empty where it lost nothing."""
        beyond, unowned, _ = await self._compared()
        gaps = [_log_gap(each) for each in await self._store.gaps() if each.topic == self._topic]
        words: dict[str, Any] = {}
        if beyond:
            words |= {"beyond": len(beyond), "taken_in_until": iso(max(beyond))}
        if gaps:
            words["missing"] = sum(gap.missing or 0 for gap in gaps)
        return words | ({"unowned": unowned} if unowned else {})

    async def in_step(self, topic: str) -> bool:
        """Whether the group of `topic` received all that it had, or an operator accepted that it did not."""
        return all(each.topic != topic for each in await self._store.gaps())

    async def note(self, gap: LogGap) -> None:
        """Keep it for an operator, and say so. See `GapFound`."""
        await self._store.note(NotedGap(gap.topic, gap.partition, gap.position, gap.resumed_at, self._clock.now()))
        metrics.MESSAGES_LOST.labels(gap.topic).inc(gap.missing or 0)
        _log.error(
            "topic.messages_lost",
            topic=gap.topic,
            partition=gap.partition,
            position=gap.position,
            resumed_at=gap.resumed_at,
            missing=gap.missing,
        )

    async def move_unowned(self) -> int:
        """Give rows of partitions that the topic does not have any more to those that their messages would go to now; how many."""
        async with self._log.admin() as admin:
            partitions = (await admin.list()).get(self._topic, 0)
        moved = 0
        while partitions and (keys := await self._store.unowned_keys(partitions)):
            homes = {key: partition_of(":".join(key).encode(), partitions) for key in keys}
            moved += await self._store.move(partitions, homes)
        if moved:
            _log.warning("rows.moved", topic=self._topic, partitions=partitions, count=moved)
        return moved

    async def accept(self, audit: Audit) -> None:
        """Go on with the topics as they are. On the audit trail."""
        async with audit.operation("topics.accept_loss", target=self._topic):
            await self._store.accept()

    async def _compared(self) -> tuple[list[datetime], int, Mapping[int, range]]:
        """When submissions were accepted that the topic has nothing of; how many rows nobody owns; what the topic has."""
        places = await self._store.newest_places()
        if not places:
            return [], 0, {}
        async with self._log.admin() as admin:
            held = await admin.offsets(self._topic)
        beyond = [each for each in places if each.partition not in held or each.offset >= held[each.partition].stop]
        unowned = await self._store.unowned(len(held)) if held else 0
        return [each.accepted_at for each in beyond], unowned, held

    async def _lost_messages(self, noted: NotedGap, *, timed: bool) -> LostMessages:
        gap = _log_gap(noted)
        known, since = await self._store.around(noted) if gap.topic == self._topic else ((), None)
        until = await self._appended_at(gap.topic, gap.partition, gap.resumed_at) if timed else None
        return LostMessages(gap.topic, gap.partition, gap.missing, since, until, noted.noted_at, known)

    async def _appended_at(self, topic: str, partition: int | None, offset: int) -> datetime | None:
        """When the message at `offset` of `partition`, or else the first after it, was appended; of all partitions where that is
        None, the earliest. None where there is none."""
        async with self._log.tail(topic, from_beginning=partition is None) as tail:
            if partition is not None:
                await tail.seek({partition: offset})
            found = await tail.receive(max_messages=500, wait_seconds=_FIRST_KEPT_SECONDS)
        times = [each.timestamp_ms for each in found if partition is None or each.partition == partition]
        return moment_of(min(times)) if times else None


def _log_gap(noted: NotedGap) -> LogGap:
    return LogGap(noted.topic, noted.partition, noted.position, noted.resumed_at)
