"""Result events as somebody follows them: read from the topic, selected, printed. Touches the log and standard output."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from forwarder.cli.output import json_line, note, printable, show_lines
from forwarder.process.clock import Clock
from forwarder.topics.codec import Undecodable
from forwarder.topics.port import ConsumedMessage, Log, LogUnavailable
from forwarder.topics.structured_event import structured_event
from forwarder.topics.to_end import read_to_end

_AT_A_TIME = 500
_WAIT_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_NOTHING = "-"

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events, as far as they are given: of an account, of a workspace, of one of `types`; and how many of them at most."""

    account: str | None = None
    workspace: str | None = None
    types: frozenset[str] = frozenset()
    count: int | None = None

    def includes(self, event: Event) -> bool:
        """Whether `event` is wanted."""
        data = event["data"]
        return (
            (self.account is None or data.get("integrationAccountId") == self.account)
            and (self.workspace is None or data.get("workspaceId") == self.workspace)
            and (not self.types or event["type"] in self.types)
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is read of a topic: from its beginning, or what was taken `since`, or from its end; and whether the reader stays for
    what comes after."""

    beginning: bool = False
    since: datetime | None = None
    follow: bool = True


async def print_events(log: Log, topic: str, stretch: Stretch, wanted: Wanted, clock: Clock, *, as_json: bool) -> None:
    """Print what is wanted, each batch as it comes. Returns when there are enough, or at the end where it does not `follow`.

    What cannot be read is noted on standard error and passed over, and so is an outage once it is known that the topic is there.
    Raises `LogUnavailable`.
    """
    left = wanted.count
    async with aclosing(_batches(log, topic, stretch, clock)) as batches:
        async for batch in batches:
            events = [event for each in batch if (event := _event(each)) is not None and wanted.includes(event)]
            show_lines([json_line(event) if as_json else line(event) for event in events[:left]])
            left = None if left is None else left - len(events[:left])
            if left == 0:
                return


def _batches(log: Log, topic: str, stretch: Stretch, clock: Clock) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    return _following(log, topic, stretch, clock) if stretch.follow else read_to_end(log, topic, since=stretch.since)


async def _following(
    log: Log, topic: str, stretch: Stretch, clock: Clock
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    async with log.tail(topic, from_beginning=stretch.beginning) as tail:
        if stretch.since is not None:
            await tail.seek_to_time(stretch.since)
        while True:
            try:
                yield await tail.receive(max_messages=_AT_A_TIME, wait_seconds=_WAIT_SECONDS)
            except LogUnavailable as outage:
                note(f"{outage}; trying again")
                await clock.sleep(_PAUSE_SECONDS)


def _event(delivery: ConsumedMessage) -> Event | None:
    try:
        return structured_event(delivery.message)
    except Undecodable as fault:
        note(f"{delivery.topic}, partition {delivery.partition}, offset {delivery.offset}: {fault}; passed over")
        return None


def line(event: Event) -> str:
    """One line for a person: when, what, whose; then the ids, and the problem's code."""
    data = event["data"]
    record = _object(data.get("reservation"))
    problem = _object(_object(data.get("cancellation")).get("problem") or record.get("problem"))
    ids = (record.get("id"), record.get("pmsReservationId"), problem.get("code"))
    parts = (event.get("time"), event["type"], data.get("integrationAccountId"), data.get("requestId"), *ids)
    return "  ".join(_NOTHING if part is None else " ".join(printable(str(part)).split()) for part in parts)


def _object(value: Any) -> Mapping[str, Any]:
    """`value` where it is a JSON object: whoever else writes to the topic may put anything there."""
    return value if isinstance(value, dict) else {}
