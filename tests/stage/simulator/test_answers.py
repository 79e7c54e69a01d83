"""Answers of simulated PMSs that drip, or have wrong types; and what the adapters make of them."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy
from forwarder.pms.port import AccountConnection
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import Absent, Confirmed, InDoubt, Outcome
from forwarder.simulator.faults import WAYS, Faults
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import simulator_app
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock, settle
from tests.support.simulator.client import GENERIC, NOW, STAY, simulated
from tests.support.simulator.server import booking, running_simulator
from tests.support.stages.asgi_call import AsgiCall

KINDS = ["generic", "website-builder", "booking-sync"]
HEADERS = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
LONGER_THAN_ANY_PUSH = 301


@pytest.mark.parametrize(("mode", "made"), [("drip", 0), ("drip_after_booking", 1)])
async def test_a_drip_is_an_answer_at_once_and_its_body_never_in_time(mode: str, made: int) -> None:
    clock = ManualClock(NOW)
    world = World(clock, faults=Faults.model_validate({"mode": mode}))
    call = AsgiCall(simulator_app(world), GENERIC, HEADERS, json.dumps(STAY).encode())
    await settle()
    assert (call.status, world.made) == (201, made)
    assert _bodies(call) == [1]
    await clock.advance(0.5)
    assert _bodies(call) == [1, 1]
    for _ in range(2 * LONGER_THAN_ANY_PUSH):
        await clock.advance(0.5)
    announced = next(int(value) for name, value in call.sent[0]["headers"] if name == b"content-length")
    assert len(_bodies(call)) < announced
    call.cancel()
    await call.ended()


def _bodies(call: AsgiCall) -> list[int]:
    return [len(message["body"]) for message in call.sent if message["type"] == "http.response.body"]


async def test_a_drip_ends_when_the_client_leaves() -> None:
    world = World(ManualClock(NOW), faults=Faults(mode="drip"))
    call = AsgiCall(simulator_app(world), GENERIC, HEADERS, json.dumps(STAY).encode())
    await settle()
    call.leave()
    await asyncio.wait_for(call.ended(), 5)
    assert _bodies(call) == [1]


async def test_a_drip_is_broken_off_when_the_fault_is_lifted() -> None:
    async with running_simulator() as simulator, httpx.AsyncClient(timeout=5) as http:
        simulator.go_wrong("drip")
        url = f"{simulator.base_url('generic')}/reservations"
        async with http.stream("POST", url, json=STAY, headers=HEADERS) as answer:
            assert answer.status_code == 201
            simulator.work()
            with pytest.raises(httpx.TransportError):
                await answer.aread()


async def test_wrong_types_go_wrong_in_every_way() -> None:
    async with simulated() as client:
        await client.go_wrong(mode="wrong_types_after_booking")
        answers = [(await client.book(f"R{number}", roomId=f"A{number}")).json() for number in range(len(WAYS))]
        assert await client.count() == len(WAYS)
        assert len({json.dumps(answer) for answer in answers}) == len(WAYS)
        assert not any(_as_agreed(answer) for answer in answers)


def _as_agreed(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer["id"], int) and isinstance(answer["reference"], str)


@for_each("kind", KINDS)
@for_each("mode", ["wrong_types", "drip"])
async def test_a_booking_behind_such_an_answer_is_in_doubt_and_found(kind: str, mode: str) -> None:
    async with running_simulator() as simulator, open_directory(SystemClock(), policy=PushPolicy(0.5)) as directory:
        pms = directory.connect(AccountConnection("acme", kind, simulator.base_url(kind), "secret"))
        simulator.go_wrong(f"{mode}_after_booking")
        reason = "pms_answer_not_understood" if mode == "wrong_types" else "pms_timed_out"
        for number in range(1, 1 + (len(WAYS) if mode == "wrong_types" else 1)):
            outcome: Outcome = await pms.create(booking(number))
            assert isinstance(outcome, InDoubt)
            assert outcome.reason == reason
            assert isinstance(await pms.find(booking(number)), Confirmed)
            assert simulator.world.made == number


@for_each("kind", KINDS)
@for_each("mode", ["wrong_types", "drip"])
async def test_such_an_answer_alone_confirms_nothing_and_denies_nothing(kind: str, mode: str) -> None:
    async with running_simulator() as simulator, open_directory(SystemClock(), policy=PushPolicy(0.5)) as directory:
        pms = directory.connect(AccountConnection("acme", kind, simulator.base_url(kind), "secret"))
        simulator.go_wrong(mode)
        for _ in range(len(WAYS) if mode == "wrong_types" else 1):
            assert not isinstance(await pms.create(booking()), Confirmed)
            assert not isinstance(await pms.find(booking()), Absent | Confirmed)
        assert simulator.world.made == 0
