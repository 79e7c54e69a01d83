"""Detects messages that the topics lost: some that the deployment ingested, or some that it never received, because a topic was
lost, recreated, or kept too short. A loss causes no double booking: the store knows what it ingested. But submissions that were
accepted and not yet ingested are gone, and an operator has to know."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from forwarder.observability import metrics
from forwarder.oversight.audit import Audit
from forwarder.process.clock import Clock, iso
from forwarder.store.submissions.repairs import NotedGap, Places
from forwarder.topics.codec import subject
from forwarder.topics.port import Log, LogGap, moment_of, partition_of, read_last

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LostMessages:
    """Messages that a topic lost before its group received them. `missing`: how many; None if unknown. They were published after
    `since` and before `until`, if known. `known`: request ids of those that the store has anyway."""

    topic: str
    partition: int
    missing: int | None
    since: datetime | None
    until: datetime | None
    noted_at: datetime
    known: Sequence[str]


@dataclass(frozen=True, slots=True)
class TopicLost:
    """`beyond`: how many of the newest submissions have an offset past the end of the topic. `taken_in_until`: when the last of
    them was accepted; `kept_from`: when the topic's first message was appended, None if it is empty. Submissions accepted in
    between may be lost. `gaps`: messages lost before they were received. `unowned`: rows with work left, of partitions that the
    topic no longer has; a worker moves them within half a minute."""

    beyond: int
    taken_in_until: datetime | None
    kept_from: datetime | None
    gaps: Sequence[LostMessages] = ()
    unowned: int = 0


class TopicCheck:
    """Checks one deployment's topics; `topic` is the requests topic. Raises `LogUnavailable`, `StoreUnavailable`."""

    def __init__(self, log: Log, topic: str, store: Places, clock: Clock) -> None:
        self._log, self._topic, self._store, self._clock = log, topic, store, clock

    async def lost(self, *, timed: bool = True) -> TopicLost | None:
        """The losses; None if there are none. If `timed`, reads the topics to find out when they happened."""
        beyond, unowned, held = await self._compared()
        gaps = []
        for gap in await self._store.gaps():
            known, since = await self._store.around(gap) if gap.topic == self._topic else ((), None)
            until = await self._appended_at(gap.topic, gap.partition, gap.resumed_at) if timed else None
            gaps.append(LostMessages(gap.topic, gap.partition, gap.missing, since, until, gap.noted_at, known))
        if not (beyond or unowned or gaps):
            return None
        read = timed and beyond and any(held.values())
        kept_from = await self._appended_at(self._topic, None, 0) if read else None
        return TopicLost(len(beyond), max(beyond, default=None), kept_from, gaps, unowned)

    async def in_words(self) -> Mapping[str, Any]:
        """The losses of the requests topic, as fields of a log event; empty if there are none."""
        beyond, unowned, _ = await self._compared()
        gaps = [each for each in await self._store.gaps() if each.topic == self._topic]
        words: dict[str, Any] = {"beyond": len(beyond), "taken_in_until": iso(max(beyond))} if beyond else {}
        words |= {"missing": sum(gap.missing or 0 for gap in gaps)} if gaps else {}
        return words | ({"unowned": unowned} if unowned else {})

    async def in_step(self, topic: str) -> bool:
        """Whether the group of `topic` received all its messages, or an operator accepted the loss."""
        return all(each.topic != topic for each in await self._store.gaps())

    async def cut_back(self, partitions: Collection[int]) -> Sequence[LogGap]:
        """A gap for each of `partitions` that has another message where the newest ingested one was: it was cut back, as in an
        unclean election, and has grown again. `resumed_at`: from where to receive again what was appended since. Without those
        noted."""
        places = sorted(await self._store.newest_places())
        newest = {place.partition: place for place in places if place.partition in partitions}
        before = {partition: place.offset + 1 for partition, place in newest.items()}
        there = {
            (each.partition, each.offset): subject(each.message.headers)
            for each in await read_last(self._log, self._topic, 1, before=before)
        }
        noted = {(gap.topic, gap.partition, gap.position) for gap in await self._store.gaps()}
        cut = [
            place
            for place in newest.values()
            if there.get(place[:2], place.request_id) != place.request_id
            and (self._topic, place.partition, place.offset + 1) not in noted
        ]
        if not cut:
            return ()
        async with self._log.admin() as admin:
            (first,) = await admin.offsets_at(self._topic, [moment_of(min(place.timestamp_ms for place in cut))])
        return [LogGap(self._topic, place.partition, place.offset + 1, first[place.partition]) for place in cut]

    async def note(self, gap: LogGap) -> None:
        """Records the gap for operators, counts and logs it. See `GapFound`."""
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
        """Moves rows of partitions that the topic no longer has to the partitions that their keys hash to now; returns how many."""
        async with self._log.admin() as admin:
            partitions = (await admin.list()).get(self._topic, 0)
        moved = 0
        while partitions and (keys := await self._store.unowned_keys(partitions)):
            moved += await self._store.move(_homes(keys, partitions), gone=partitions)
        if moved:
            _log.warning("rows.moved", topic=self._topic, partitions=partitions, count=moved)
        return moved

    async def move_all(self, partitions: int) -> int:
        """After the topic was given so many partitions: moves all open rows to those that their keys hash to now, so that the
        reservations of a room stay with one worker, in order; returns how many. No worker may run."""
        moved, after = 0, ("", "")
        while keys := await self._store.open_keys(after):
            moved += await self._store.move(_homes(keys, partitions))
            after = keys[-1]
        return moved

    async def accept(self, audit: Audit) -> None:
        async with audit.operation("topics.accept_loss", target=self._topic):
            await self._store.accept()

    async def _compared(self) -> tuple[list[datetime], int, Mapping[int, range]]:
        """When the submissions beyond the topic's end were accepted; the number of unowned rows; the topic's offsets."""
        places = await self._store.newest_places()
        if not places:
            return [], 0, {}
        async with self._log.admin() as admin:
            held = await admin.offsets(self._topic)
        beyond = [
            each.accepted_at
            for each in places
            if each.partition not in held or each.offset >= held[each.partition].stop
        ]
        return beyond, await self._store.unowned(len(held)) if held else 0, held

    async def _appended_at(self, topic: str, partition: int | None, offset: int) -> datetime | None:
        """When the message at `offset` of `partition`, or else the first one after it, was appended; with `partition` None, the
        earliest of all partitions. None if there is no message."""
        async with self._log.tail(topic, from_beginning=partition is None) as tail:
            if partition is not None:
                await tail.seek({partition: offset})
            found = await tail.receive(max_messages=500, wait_seconds=5.0)
        times = [each.timestamp_ms for each in found if partition is None or each.partition == partition]
        return moment_of(min(times)) if times else None


def _homes(keys: Sequence[tuple[str, str]], partitions: int) -> Mapping[tuple[str, str], int]:
    return {key: partition_of(":".join(key).encode(), partitions) for key in keys}
