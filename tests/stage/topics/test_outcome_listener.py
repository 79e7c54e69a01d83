"""Those who wait for outcomes: one message, or one waiter's condition, that raises keeps no other from being told."""

import asyncio

import pytest
from structlog.testing import capture_logs

from forwarder.process.loops import cancel_all
from forwarder.topics import outcomes
from forwarder.topics.outcomes import Heard, OutcomeListener
from forwarder.topics.port import Message
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.log import MemoryLog
from tools.contracts.messages import result_messages

EXAMPLE = result_messages()[0].example


def _about(request_id: str) -> Message:
    changed = {"ce_subject": request_id.encode(), "ce_id": f"{request_id}.1".encode()}
    return Message(
        EXAMPLE.key, EXAMPLE.value, tuple((name, changed.get(name, value)) for name, value in EXAMPLE.headers)
    )


async def test_one_that_raises_keeps_nine_others_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    log = MemoryLog(clock)
    listener = OutcomeListener(log.tail("reservations.results"), clock)
    decode = outcomes._decode  # noqa: SLF001

    def buggy(message: Message) -> Heard:
        if dict(message.headers)["ce_subject"] == b"rsv_5":
            raise OverflowError
        return decode(message)

    monkeypatch.setattr(outcomes, "_decode", buggy)
    heard: list[int] = []

    async def wait_for(number: int) -> None:
        async with listener.expecting(f"rsv_{number}") as waiter:
            assert waiter is not None
            await log.publish("reservations.results", [_about(f"rsv_{number}")])
            if await waiter.within(60.0, asyncio.Event().wait) is not None:  # type: ignore[arg-type]
                heard.append(number)

    with capture_logs() as logs:
        running = asyncio.create_task(listener.run())
        await settle()
        waiting = [asyncio.create_task(wait_for(number)) for number in range(10)]
        for _ in range(70):
            await settle()
            await clock.advance(1.0)
        await asyncio.gather(*waiting)
        await cancel_all([running])
    assert sorted(heard) == [number for number in range(10) if number != 5]
    assert [each["where"] for each in logs if each["event"] == "fault.contained"] == ["waiters"]
