"""What `forwarder results tail` selects, and what it prints of an event."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from forwarder.operate.results import EventFilter, ReadRange, print_events
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import Log, Message, Tail
from tests.support.cases import for_each
from tests.support.log.messages import SOON
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.log import MemoryLog
from tools.contracts.messages import result_messages

TOPIC = "reservations.results"
EVENTS = {one.kind: one.example for one in result_messages()}
CONFIRMED, REJECTED, FAILED = (EVENTS[f"reservation.{kind}.v1"] for kind in ("confirmed", "rejected", "failed"))
OF_ANOTHER = json.loads(FAILED.value) | {"integrationAccountId": "other", "workspaceId": "others"}
PUBLISHED = [
    CONFIRMED,
    REJECTED,
    Message(b"key", b"\x9b2J"),
    FAILED,
    replace(FAILED, value=json.dumps(OF_ANOTHER).encode()),
]


@pytest.fixture
async def log(tmp_path: Path) -> EmbeddedLog:
    opened = EmbeddedLog(tmp_path / "log.sqlite3", partitions=1)
    async with opened.publisher() as publisher:
        await publisher.publish(TOPIC, PUBLISHED)
    return opened


def field(message: Message, name: str) -> str:
    found: str = json.loads(message.value)[name]
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EventFilter(), [CONFIRMED, REJECTED, FAILED, PUBLISHED[-1]]),
        (EventFilter(types=frozenset({"reservation.confirmed.v1", "reservation.rejected.v1"})), [CONFIRMED, REJECTED]),
        (EventFilter(account="other"), PUBLISHED[-1:]),
        (EventFilter(workspace="others"), PUBLISHED[-1:]),
        (EventFilter(account="other", workspace=field(CONFIRMED, "workspaceId")), []),
        (EventFilter(account=field(CONFIRMED, "integrationAccountId")), [CONFIRMED, REJECTED, FAILED]),
        (EventFilter(count=2), [CONFIRMED, REJECTED]),
        (EventFilter(types=frozenset({"reservation.failed.v1"}), count=1), [FAILED]),
    ],
)
async def test_what_is_wanted_is_printed_in_order_and_nothing_else(
    wanted: EventFilter, expected: list[Message], log: EmbeddedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    stretch = ReadRange(beginning=True, follow=False)
    await print_events(log, TOPIC, stretch, wanted, ManualClock(), as_json=True)
    said = capsys.readouterr()
    assert [json.loads(line)["data"] for line in said.out.splitlines()] == [json.loads(each.value) for each in expected]
    unread = f"{TOPIC}, partition 0, offset 2: not a CloudEvent"
    assert (unread in said.err) or wanted.count is not None


async def test_a_line_names_time_type_account_and_ids(log: EmbeddedLog, capsys: pytest.CaptureFixture[str]) -> None:
    for since in (CONFIRMED, REJECTED):
        wanted = EventFilter(types=frozenset({dict(since.headers)["ce_type"].decode()}))
        await print_events(log, TOPIC, ReadRange(beginning=True, follow=False), wanted, ManualClock(), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    record, refused = json.loads(CONFIRMED.value)["reservation"], json.loads(REJECTED.value)["reservation"]
    for line, event, ids in zip(
        lines,
        (CONFIRMED, REJECTED),
        ((str(record["pmsReservationId"]), "-"), ("-", refused["problem"]["code"])),
        strict=True,
    ):
        headers = {name: value.decode() for name, value in event.headers}
        about = (field(event, "integrationAccountId"), field(event, "requestId"), str(record["id"]))
        assert line.split("  ") == [headers["ce_time"], headers["ce_type"], *about, *ids]


async def test_nothing_of_an_event_reaches_a_terminal_as_a_command(
    log: EmbeddedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = {"integrationAccountId": "\x1b[2J\n\x9bfake", "reservation": [], "cancellation": 7}
    headers = tuple((f"ce_{name}", b"evil") for name in ("specversion", "id", "source", "type"))
    async with log.publisher() as publisher:
        await publisher.publish(TOPIC, [Message(b"key", json.dumps(evil).encode(), headers)])
    wanted = EventFilter(types=frozenset({"evil"}))
    await print_events(log, TOPIC, ReadRange(beginning=True, follow=False), wanted, ManualClock(), as_json=False)
    assert capsys.readouterr().out == "-  evil  \\x1b[2J \\x9bfake  -  -  -  -\n"


async def test_what_python_alone_takes_for_a_number_is_never_printed_as_one(
    log: EmbeddedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = tuple((f"ce_{name}", b"odd") for name in ("specversion", "id", "source", "type"))
    async with log.publisher() as publisher:
        await publisher.publish(TOPIC, [Message(b"key", b'{"a":%s}' % each, headers) for each in (b"NaN", b"1e400")])
    wanted = EventFilter(types=frozenset({"odd"}))
    await print_events(log, TOPIC, ReadRange(beginning=True, follow=False), wanted, ManualClock(), as_json=True)
    said = capsys.readouterr()
    (event,) = (json.loads(line, parse_constant=pytest.fail) for line in said.out.splitlines())
    assert event["data"] == {"a": None}
    assert "offset 5: not JSON" in said.err


@for_each("name", ["integrationAccountId", "workspaceId"])
@for_each("odd", [[], {}, [1], None, 7])
def test_an_event_of_odd_owners_is_compared_like_any_other(name: str, odd: object) -> None:
    event = {"type": "odd", "data": {name: odd}}
    assert EventFilter().includes(event)
    assert not EventFilter(account="acc", workspace="ws").includes(event)


class _OneTail:
    """Of a log only the part that a tail needs."""

    def __init__(self, memory: MemoryLog) -> None:
        self._memory = memory

    @asynccontextmanager
    async def tail(self, topic: str, *, from_beginning: bool = False) -> AsyncIterator[Tail]:
        yield self._memory.tail(topic)


async def test_an_outage_is_noted_and_followed_through(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    memory = MemoryLog(clock)
    memory.topics[TOPIC] += [CONFIRMED]
    memory.away = True
    log = cast("Log", _OneTail(memory))
    printing = asyncio.ensure_future(print_events(log, TOPIC, ReadRange(), EventFilter(count=1), clock, as_json=True))
    await settle()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "the log is away; trying again\n")
    memory.away = False
    await clock.advance(1)
    await asyncio.wait_for(printing, SOON)
    assert json.loads(capsys.readouterr().out)["type"] == "reservation.confirmed.v1"
