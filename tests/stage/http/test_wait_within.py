"""A result within a time: at once, later, too late, or not at all because the caller gave up."""

import asyncio

import pytest

from forwarder.http.messages import wait_within


async def _at_once() -> int:
    return 1


async def _fails() -> int:
    raise LookupError


async def test_what_need_not_wait_is_there_at_once_and_takes_no_turn_of_the_loop() -> None:
    others: list[int] = []
    asyncio.get_running_loop().call_soon(others.append, 1)
    assert await wait_within(5, _at_once()) == 1
    assert not others


async def test_what_waits_several_times_is_awaited_to_its_end() -> None:
    event, seen = asyncio.Event(), []

    async def waits() -> str:
        await asyncio.sleep(0)
        seen.append("slept")
        await event.wait()
        return "done"

    asyncio.get_running_loop().call_later(0.01, event.set)
    assert await wait_within(5, waits()) == "done"
    assert seen == ["slept"]


async def test_what_it_raises_is_raised() -> None:
    async def fails_later() -> int:
        await asyncio.sleep(0)
        return await _fails()

    for failing in (_fails(), fails_later()):
        with pytest.raises(LookupError):
            await wait_within(5, failing)


async def test_what_takes_too_long_is_cancelled() -> None:
    ended: list[str] = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(TimeoutError):
        await wait_within(0.01, never())
    assert ended == ["cancelled"]


async def test_whoever_waits_can_be_cancelled() -> None:
    ended: list[str] = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    waiting = asyncio.create_task(wait_within(5, never()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == ["cancelled"]
