"""One timer for many waits: each ends in its time, and what is done is left alone."""

import asyncio

import pytest

from forwarder.topics.kafka.accumulator import Timeouts


async def test_a_wait_that_is_not_done_in_time_fails() -> None:
    waits = [asyncio.get_running_loop().create_future() for _ in range(3)]
    limits = Timeouts(0.01)
    for wait in waits:
        limits.start(wait)
    for wait in waits:
        with pytest.raises(TimeoutError):
            await wait


async def test_each_wait_lasts_from_its_own_beginning() -> None:
    loop = asyncio.get_running_loop()
    limits, first, second = Timeouts(0.05), loop.create_future(), loop.create_future()
    limits.start(first)
    await asyncio.wait([first], timeout=0.02)
    began = loop.time()
    limits.start(second)
    await asyncio.wait([second])
    assert isinstance(first.exception(), TimeoutError)
    assert isinstance(second.exception(), TimeoutError)
    assert loop.time() - began >= 0.045


async def test_what_is_done_or_given_up_stays_so() -> None:
    loop = asyncio.get_running_loop()
    limits, done, given_up, last = Timeouts(0.01), loop.create_future(), loop.create_future(), loop.create_future()
    for wait in (done, given_up, last):
        limits.start(wait)
    done.set_result(None)
    given_up.cancel()
    with pytest.raises(TimeoutError):
        await last
    assert done.result() is None
    assert given_up.cancelled()
