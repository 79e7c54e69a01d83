"""A PMS that answers twice: the second answer, which comes while another request waits on that connection, is nobody's."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms
from forwarder.process.clock import SystemClock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected
from tests.support.cases import for_each
from tests.support.network.raw_server import Caller, raw_server
from tests.support.simulator.server import booking

REFUSED = b'{"code":"room_unavailable","detail":"sold out"}'


@dataclass
class TwiceAnswering:
    """Answers each request at once, and again a little later. `names`: whether it names references; every `refuses`-th
    reservation is refused. `made`: what it made, by reference."""

    names: bool = True
    refuses: int = 0
    seconds: float = 0.01
    made: dict[str, str] = field(default_factory=dict)
    late: set[asyncio.Task[None]] = field(default_factory=set)
    asked: int = 0

    async def __call__(self, caller: Caller) -> None:
        while True:
            request = await caller.request()
            answer = self._answer(request)
            await caller.say(answer)
            again = asyncio.create_task(self._again(caller, answer))
            self.late.add(again)
            again.add_done_callback(self.late.discard)

    async def _again(self, caller: Caller, answer: bytes) -> None:
        await asyncio.sleep(self.seconds)
        with suppress(ConnectionError):
            await caller.say(answer)

    def _answer(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        if head.startswith(b"GET"):
            reference = head.split(b"reference=")[1].split()[0].decode()
            found = [{"id": self.made[reference], "reference": reference}] if reference in self.made else []
            return _http(200, json.dumps({"data": found}).encode())
        self.asked += 1
        reference = json.loads(body)["reference"]
        if self.refuses and self.asked % self.refuses == 0:
            return _http(409, REFUSED)
        self.made[reference] = f"pms-{reference}"
        named = {"reference": reference} if self.names else {}
        return _http(201, json.dumps({"id": self.made[reference], "accessCode": reference, **named}).encode())


def _http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d Said\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


@asynccontextmanager
async def accounts(pms: TwiceAnswering, count: int) -> AsyncIterator[list[Pms]]:
    async with raw_server(pms) as server, open_directory(SystemClock()) as directory:
        yield [directory.connect(AccountConnection(f"acc-{n}", "generic", server.url, "secret")) for n in range(count)]


async def pushed(pms: Pms, numbers: range, pause: float = 0.003) -> list[tuple[Booking, Outcome]]:
    """Create one after the other, as fast as a busy account does."""
    ended = []
    for number in numbers:
        one = booking(number)
        ended.append((one, await pms.create(one)))
        await asyncio.sleep(pause)
    return ended


def judge(pms: TwiceAnswering, ended: list[tuple[Booking, Outcome]]) -> dict[str, int]:
    """What became of them; fails where an outcome is not the reservation's own."""
    seen: dict[str, int] = {}
    for one, outcome in ended:
        seen[type(outcome).__name__] = seen.get(type(outcome).__name__, 0) + 1
        match outcome:
            case Confirmed():
                assert outcome.pms_reservation_id == f"pms-{one.reference}" == pms.made.get(one.reference)
            case Rejected() | Deferred():
                assert one.reference not in pms.made
            case InDoubt():
                pass
    return seen


@for_each("names", [True, False], ids=["which names references", "which does not"])
@for_each("refuses", [0, 3], ids=["", "refusing some"])
@for_each("seconds", [0.0, 0.008, 0.04])
async def test_a_second_answer_is_nobodys(names: bool, refuses: int, seconds: float) -> None:
    pms = TwiceAnswering(names=names, refuses=refuses, seconds=seconds)
    async with accounts(pms, 4) as connected:
        ended = await asyncio.gather(*(pushed(one, range(n * 100, n * 100 + 20)) for n, one in enumerate(connected)))
    seen = judge(pms, [each for one in ended for each in one])
    assert sum(seen.values()) == 80
    # One that always names it, as the open contract asks, and does not once, is not believed.
    assert seen["Confirmed"] >= 20 if names else "Confirmed" not in seen, seen


@pytest.mark.slow
@pytest.mark.parametrize("names", [True, False], ids=["which names references", "which does not"])
async def test_of_ten_thousand_none_has_anothers_answer(names: bool) -> None:
    pms = TwiceAnswering(names=names, refuses=7, seconds=0.006)
    async with accounts(pms, 20) as connected:
        pushes = (pushed(one, range(n * 1000, n * 1000 + 500), pause=0.001) for n, one in enumerate(connected))
        ended = await asyncio.gather(*pushes)
    seen = judge(pms, [each for one in ended for each in one])
    assert sum(seen.values()) == 10_000
    assert seen["Confirmed"] >= 2_000 if names else "Confirmed" not in seen, seen


async def test_a_lookup_hears_no_answer_of_another_request() -> None:
    pms = TwiceAnswering(seconds=0.004)
    async with accounts(pms, 1) as (account,):
        ended = await pushed(account, range(20))
        for one, _ in ended:
            found = await account.find(one)
            assert isinstance(found, Confirmed)
            assert found.pms_reservation_id == f"pms-{one.reference}"


async def test_accounts_share_no_connection() -> None:
    """Not even at the same PMS: what one workspace is told, another never is."""
    over: list[set[str]] = []

    async def script(caller: Caller) -> None:
        seen: set[str] = set()
        over.append(seen)
        while True:
            request = await caller.request()
            seen.add(request.split(b"Authorization: Bearer ")[1].split()[0].decode())
            reference = json.loads(request.partition(b"\r\n\r\n")[2])["reference"]
            await caller.say(_http(201, json.dumps({"id": 1, "reference": reference}).encode()))

    async with raw_server(script) as server, open_directory(SystemClock()) as directory:
        for number in range(6):
            name = "ab"[number % 2]
            pms = directory.connect(AccountConnection(name, "generic", server.url, name))
            assert isinstance(await pms.create(booking(number)), Confirmed)
        assert sorted(map(sorted, over)) == [["a"], ["b"]]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((201, {"id": "2"}), id="without a reference"),
        pytest.param((201, {"id": "2", "reference": "rsv_of_another"}), id="another's"),
    ],
)
async def test_an_answer_that_is_not_seen_to_be_ours_where_others_were_is_in_doubt(said: tuple[int, Any]) -> None:
    asked = 0

    async def script(caller: Caller) -> None:
        nonlocal asked
        while True:
            reference = json.loads((await caller.request()).partition(b"\r\n\r\n")[2])["reference"]
            asked += 1
            status, body = (201, {"id": "1", "reference": reference}) if asked == 1 else said
            await caller.say(_http(status, json.dumps(body).encode()))

    async with raw_server(script) as server, open_directory(SystemClock()) as directory:
        pms = directory.connect(AccountConnection("a", "generic", server.url, "secret"))
        assert isinstance(await pms.create(booking(1)), Confirmed)
        assert isinstance(await pms.create(booking(2)), InDoubt)
        assert server.connections == 1
