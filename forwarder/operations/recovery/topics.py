"""Whether the requests topic has all that the store took from it: one that was lost, or made anew, has not.

Nothing is made twice by that: the store knows what it took in. What was accepted and not taken in yet is gone, in silence, unless
somebody is told of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forwarder.operations.audit import Audit
from forwarder.process.clock import iso
from forwarder.store.submissions.recovery import SqlPlaces
from forwarder.topics.port import Log, moment_of


@dataclass(frozen=True, slots=True)
class TopicLost:
    """`beyond`: how many of the newest submissions were where the topic has nothing yet. `taken_in_until`: when the last of them
    was accepted; `kept_from`: when the topic's first message was appended, None where it has none. What was accepted between is
    not known to be anywhere."""

    beyond: int
    taken_in_until: datetime
    kept_from: datetime | None


class TopicCheck:
    """Of one deployment's `topic`. Raises `LogUnavailable`, `StoreUnavailable`."""

    def __init__(self, log: Log, topic: str, store: SqlPlaces) -> None:
        self._log = log
        self._topic = topic
        self._store = store

    async def lost(self) -> TopicLost | None:
        """What the store says beyond the topic's end; None where they go together."""
        places = await self._store.newest_places()
        if not places:
            return None
        async with self._log.admin() as admin:
            held = await admin.offsets(self._topic)
        beyond = [each for each in places if each.partition not in held or each.offset >= held[each.partition].stop]
        if not beyond:
            return None
        kept_from = await self._first_kept() if any(held.values()) else None
        return TopicLost(len(beyond), max(each.accepted_at for each in beyond), kept_from)

    async def in_words(self) -> Mapping[str, Any]:
        """The same for the log; empty where they go together."""
        lost = await self.lost()
        return {} if lost is None else {"beyond": lost.beyond, "taken_in_until": iso(lost.taken_in_until)}

    async def accept(self, audit: Audit) -> None:
        """Go on with the topic as it is. On the audit trail."""
        async with audit.operation("topics.accept_loss", target=self._topic):
            await self._store.leave_places()

    async def _first_kept(self) -> datetime | None:
        async with self._log.tail(self._topic, from_beginning=True) as tail:
            found = await tail.receive(max_messages=500, wait_seconds=5.0)
        first = min((each.timestamp_ms for each in found), default=None)
        return None if first is None else moment_of(first)
