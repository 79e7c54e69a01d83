"""`forwarder results …`: the results topic, for people and for pipes. Needs only the log."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar

from typer import Option

from forwarder.operate.command import commands, moment, open_results, stop_on_signal, unless_stopped
from forwarder.operate.output import WrongUsage, json_line, note, show_lines, while_read
from forwarder.process.clock import Clock, SystemClock
from forwarder.process.printable import printable
from forwarder.reservation.record import RESULT_TYPES
from forwarder.topics.codec import Undecodable, structured_event
from forwarder.topics.port import ConsumedMessage, Log, LogUnavailable, Message, read_to_end

_BEGINNING, _END = "beginning", "end"

Event = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events to print: of one account, of one workspace, of `types`, if given; at most `count` of them."""

    account: str | None = None
    workspace: str | None = None
    types: frozenset[str] = frozenset()
    count: int | None = None

    def includes(self, event: Event) -> bool:
        data = event["data"]
        return (
            (self.account is None or data.get("integrationAccountId") == self.account)
            and (self.workspace is None or data.get("workspaceId") == self.workspace)
            and (not self.types or event["type"] in self.types)
        )


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Which part of a topic to read: from its beginning, from the time `since`, or from its end; and whether to `follow` new
    records."""

    beginning: bool = False
    since: datetime | None = None
    follow: bool = True


async def print_events(
    log: Log, topic: str, read_range: ReadRange, wanted: EventFilter, clock: Clock, *, as_json: bool
) -> None:
    """Prints matching events as they arrive. Returns after `count` of them, or at the end if it does not `follow`.

    Reports undecodable records on standard error and skips them; also outages, once the topic is known to exist.
    Raises `LogUnavailable`.
    """
    left = wanted.count
    since = read_range.since
    reading = follow(log, topic, read_range, clock) if read_range.follow else read_to_end(log, topic, since=since)
    async with aclosing(reading) as batches:
        async for batch in batches:
            events = list(filter(wanted.includes, decoded(batch, structured_event)))
            show_lines([json_line(event) if as_json else line(event) for event in events[:left]])
            left = None if left is None else left - len(events[:left])
            if left == 0:
                return


def decoded(batch: Iterable[ConsumedMessage], decode: Callable[[Message], T]) -> Iterator[T]:
    """The records, decoded; reports those that cannot be on standard error."""
    for each in batch:
        try:
            yield decode(each.message)
        except Undecodable as fault:
            note(f"{each.topic}, partition {each.partition}, offset {each.offset}: {fault}; skipped")


async def follow(
    log: Log, topic: str, read_range: ReadRange, clock: Clock
) -> AsyncGenerator[Sequence[ConsumedMessage], None]:
    """The records in the topic, then new ones. Reports an outage on standard error and retries."""
    async with log.tail(topic, from_beginning=read_range.beginning) as tail:
        if read_range.since is not None:
            async with log.admin() as admin:
                (offsets,) = await admin.offsets_at(topic, [read_range.since])
            await tail.seek(offsets)
        while True:
            try:
                yield await tail.receive(max_messages=500, wait_seconds=1.0)
            except LogUnavailable as outage:
                note(f"{outage}; trying again")
                await clock.sleep(1.0)


def line(event: Event) -> str:
    """One line for a person: when, what, whose; then the ids, and the problem's code."""
    data = event["data"]
    record = _object(data.get("reservation"))
    problem = _object(_object(data.get("cancellation")).get("problem") or record.get("problem"))
    ids = (record.get("id"), record.get("pmsReservationId"), problem.get("code"))
    parts = (event.get("time"), event["type"], data.get("integrationAccountId"), data.get("requestId"), *ids)
    return "  ".join("-" if part is None else " ".join(printable(str(part)).split()) for part in parts)


def _object(value: Any) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else an empty one: others may write anything to the topic."""
    return value if isinstance(value, dict) else {}


async def tail(
    start: Annotated[str | None, Option("--from", metavar="WHEN")] = None,
    account: str | None = None,
    workspace: str | None = None,
    kind: Annotated[list[str] | None, Option("--type", metavar="TYPE")] = None,
    count: Annotated[int | None, Option("--count", "-n", min=1, help="Stop after this many events.")] = None,
    no_follow: bool = False,
    as_json: Annotated[bool, Option("--json", help="Print each event as a CloudEvent in JSON, one a line.")] = False,
) -> None:
    """Print result events as they arrive, until Ctrl-C: time, type, account, requestId, reservation, PMS id, problem.

    The events of one submission are in order, and may repeat with the same id; - is a missing value. Consumers are not affected.
    Reports undecodable records on standard error and skips them.

    start: beginning, end, a moment in ISO 8601, or an age such as 30m, 2h, 7d. [default: end; with --no-follow: beginning]
    account: Only of this integration account.
    workspace: Only of this workspace.
    kind: Only of this type: reservation.confirmed.v1, or confirmed; repeatable.
    no_follow: Stop at the present end of the topic."""
    wanted = EventFilter(account, workspace, types_of(kind or ()), count)
    read_range = read_range_of(start, follow=not no_follow)
    async with open_results() as (log, topic):
        with stop_on_signal() as stop, while_read():
            printing = print_events(log, topic, read_range, wanted, SystemClock(), as_json=as_json)
            await unless_stopped(printing, stop)


def types_of(given: Sequence[str]) -> frozenset[str]:
    """The full names. Raises `WrongUsage`."""
    names = {known.split(".")[1]: known for known in RESULT_TYPES} | {known: known for known in RESULT_TYPES}
    if unknown := [each for each in given if each not in names]:
        raise WrongUsage(f"There is no type {unknown[0]!r}; there are: {', '.join(RESULT_TYPES)}.")
    return frozenset(names[each] for each in given)


def read_range_of(start: str | None, *, follow: bool) -> ReadRange:
    """The start that `--from` selects. Raises `WrongUsage`."""
    where = start or (_END if follow else _BEGINNING)
    if where == _END and not follow:
        raise WrongUsage("--no-follow from the end prints nothing: leave one of them out.")
    if where in {_BEGINNING, _END}:
        return ReadRange(beginning=where == _BEGINNING, follow=follow)
    return ReadRange(since=moment(where, "--from, where it is neither beginning nor end,"), follow=follow)


COMMANDS = commands(tail=tail)
