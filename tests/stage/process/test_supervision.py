"""A process that another one started ends when that one does, and rests until it has ended."""

import asyncio
import gc
import os
from collections.abc import Iterator

import pytest

from forwarder.process.supervision import SHARED_ADDRESS, Stop, run_until_signalled


@pytest.fixture(autouse=True)
def policy_is_given_back() -> Iterator[None]:
    """The tests' own process is not one that serves."""
    before = os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None
    yield
    if before is not None:
        os.sched_setscheduler(0, before, os.sched_param(0))


@pytest.fixture
def parents_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is a parent's pipe: the end that its death closes."""
    reading, writing = os.pipe()
    thresholds = gc.get_threshold()
    with os.fdopen(reading) as standard_input:
        monkeypatch.setattr("sys.stdin", standard_input)
        monkeypatch.setenv(SHARED_ADDRESS, "127.0.0.1:1")
        yield writing
    gc.set_threshold(*thresholds)


class _Counted(asyncio.Event):
    times = 0

    def set(self) -> None:
        type(self).times += 1
        super().set()


def test_a_child_whose_parent_has_ended_stops_and_hears_of_it_once(
    parents_end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that has ended is ready for ever: a loop that went on watching it would never rest while the child leaves."""
    monkeypatch.setattr("forwarder.process.supervision.Stop", _Counted)

    async def main(stop: Stop) -> None:
        os.close(parents_end)
        async with asyncio.timeout(30):
            await stop.wait()
        for _ in range(10):
            await asyncio.sleep(0)

    run_until_signalled(main)
    assert _Counted.times == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no such policy")
def test_it_interrupts_no_other_process_when_something_comes_for_it() -> None:
    policies: list[int] = []

    async def main(_stop: Stop) -> None:
        policies.append(os.sched_getscheduler(0))

    thresholds = gc.get_threshold()
    run_until_signalled(main)
    gc.set_threshold(*thresholds)
    assert policies == [os.SCHED_BATCH]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no such policy")
def test_where_the_policy_is_forbidden_it_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_arguments: object) -> None:
        raise PermissionError

    async def main(_stop: Stop) -> None:
        ran.append(True)

    ran: list[bool] = []
    monkeypatch.setattr("os.sched_setscheduler", forbidden)
    thresholds = gc.get_threshold()
    run_until_signalled(main)
    monkeypatch.undo()
    gc.set_threshold(*thresholds)
    assert ran == [True]
