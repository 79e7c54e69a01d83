"""One unit raises while nine others go through: the nine succeed, the tenth is set aside and shown. For every loop and batch."""

import ast
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

import forwarder
from forwarder.process.loops import (
    LOOPS,
    UNREADY_AFTER,
    Batcher,
    Blame,
    Fault,
    Outage,
    Pauses,
    Where,
    by_halves,
    cancel_all,
    contained,
    forever,
    pause_after,
)
from tests.support.memory.clock import ManualClock, settle

ERRORS = (
    ValueError,
    KeyError,
    TypeError,
    AssertionError,
    OverflowError,
    RecursionError,
    MemoryError,
    UnicodeEncodeError,
    OSError,
    RuntimeError,
    StopAsyncIteration,
    ExceptionGroup,
)
"""A class of each kind; all others are caught as these are, as `Exception`."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tracebacks in colour take longer than the tests."""
    with capture_logs():
        yield


@pytest.fixture(autouse=True)
def _no_loop_fails_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests left behind in this process."""
    monkeypatch.setattr(LOOPS, "_failing", {})


def made(error: type[Exception]) -> Exception:
    if error is UnicodeEncodeError:
        return UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    return ExceptionGroup("several", [ValueError("of a guest")]) if error is ExceptionGroup else error("of a guest")


class Away(Exception):
    """An outage."""


def count_of(where: Where) -> float:
    return REGISTRY.get_sample_value("forwarder_contained_faults_total", {"where": where.value}) or 0.0


@pytest.mark.parametrize("position", [0, 5, 9])
@pytest.mark.parametrize("error", ERRORS)
async def test_of_ten_units_the_one_that_raises_is_set_aside_alone(error: type[Exception], position: int) -> None:
    through: list[int] = []
    aside: list[tuple[int, Fault]] = []

    async def step(units: Sequence[int]) -> None:
        for unit in units:
            await asyncio.sleep(0)
            if unit == position:
                raise made(error)
        through.extend(units)

    async def set_aside(unit: int, fault: Fault) -> None:
        aside.append((unit, fault))

    before = count_of(Where.INTAKE)
    await by_halves(step, range(10), where=Where.INTAKE, set_aside=set_aside)
    assert through == [unit for unit in range(10) if unit != position]
    [(unit, fault)] = aside
    assert (unit, type(fault.error)) == (position, error)
    assert fault.id in str(fault)
    assert "of a guest" not in str(fault), "it is recorded, and may quote what came from outside"
    assert count_of(Where.INTAKE) == before + 1


@pytest.mark.parametrize("position", [0, 5, 9])
@pytest.mark.parametrize("error", ERRORS)
async def test_and_so_it_is_of_ten_that_are_committed_together(error: type[Exception], position: int) -> None:
    async def flush(items: Sequence[int]) -> Sequence[int]:
        await asyncio.sleep(0)
        if position in items:
            raise made(error)
        return [item * 10 for item in items]

    async def set_aside(item: int, _fault: Fault) -> int:
        return -item

    batcher: Batcher[int, int] = Batcher(flush, where=Where.OUTCOMES, max_items=10, set_aside=set_aside)
    results = await asyncio.gather(*map(batcher.submit, range(10)))
    assert results == [-item if item == position else item * 10 for item in range(10)]


async def test_an_outage_is_everybodys_and_is_not_narrowed() -> None:
    asked: list[int] = []

    async def step(units: Sequence[int]) -> None:
        asked.append(len(units))
        raise Away

    async def set_aside(unit: int, _fault: Fault) -> None:
        raise AssertionError(unit)

    with pytest.raises(Away):
        await by_halves(step, range(10), where=Where.INTAKE, set_aside=set_aside, outages=(Away,))
    assert asked == [10]


@pytest.mark.parametrize("where", Where)
async def test_a_loop_that_fails_goes_on_and_is_not_ready_while_it_fails_over_and_over(where: Where) -> None:
    clock, tries = ManualClock(), 0

    async def step() -> None:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        if tries <= UNREADY_AFTER:
            raise made(ERRORS[tries % len(ERRORS)])
        await clock.sleep(3600.0)

    with capture_logs() as logs:
        running = asyncio.create_task(forever(step, name=where, clock=clock, outages=(Away,)))
        for _ in range(UNREADY_AFTER):
            await settle()
            await clock.advance(60.0)
        await settle()
        assert tries == UNREADY_AFTER + 1
        assert LOOPS.failing() == [where.value]
        await clock.advance(3600.0)
        await settle()
        assert LOOPS.failing() == []
        await cancel_all([running])
    events = [each["event"] for each in logs]
    assert events == [*["fault.contained"] * UNREADY_AFTER, "loop.failing", "loop.works_again"]
    assert len({each["error_id"] for each in logs if each["event"] == "fault.contained"}) == UNREADY_AFTER


async def test_a_loop_that_is_cancelled_is_not_failing_any_more() -> None:
    clock = ManualClock()

    async def step() -> None:
        raise ValueError

    running = asyncio.create_task(forever(step, name=Where.SWEEP, clock=clock, outages=()))
    for _ in range(UNREADY_AFTER):
        await settle()
        await clock.advance(60.0)
    assert LOOPS.failing() == ["sweep"]
    await cancel_all([running])
    assert LOOPS.failing() == []


def test_a_place_works_again_where_something_went_through_after_its_loops_began_anew() -> None:
    Blame(Where.INTAKE).outage(Fault("err_1", Where.INTAKE, ValueError()))
    assert LOOPS.failing() == ["intake"]
    Blame(Where.INTAKE).works()
    assert LOOPS.failing() == []


def test_pauses_grow_and_end() -> None:
    clock = ManualClock()
    pauses = Pauses[str](clock.monotonic)
    assert [pause_after(faults) for faults in (1, 2, 3, 9, 10, 99)] == [1.0, 2.0, 4.0, 256.0, 300.0, 300.0]
    pauses.faulted("acc")
    assert (pauses.resting("acc"), pauses.resting("other")) == (True, False)
    pauses.works("acc")
    assert not pauses.resting("acc")


# --- what there is in the code ----------------------------------------------------------------------------------------------

PACKAGE = Path(forwarder.__file__).parent


def _nodes(word: str) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the modules in which the word is."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if word in (text := path.read_text()):
            yield from ((path, node) for node in ast.walk(ast.parse(text)))


def _places() -> set[str]:
    """The members of `Where` that the code names in a call of what contains faults."""
    return {
        node.attr
        for _, node in _nodes("Where.")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Where"
    }


def test_every_place_of_the_catalogue_is_one_of_the_code_and_the_reverse() -> None:
    assert _places() == set(Where.__members__)


def test_no_loop_runs_without_containment() -> None:
    """`while True` around an await, outside the modules whose loops end with what they serve."""
    bare = {
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, node in _nodes("while True")
        if {"worker", "notifier"} & set(path.parts)
        and isinstance(node, ast.While)
        and isinstance(node.test, ast.Constant)
    }
    assert {each.split(":")[0] for each in bare} <= LOOPS_WITHIN_A_STEP, "run it by `forever`"


LOOPS_WITHIN_A_STEP = {
    "worker/service.py",  # reads a topic within the step of `intake`
    "notifier/service.py",  # the same
    "housekeeping/retention.py",  # batches of one sweep
    "notifier/webhooks.py",  # one change of a webhook, made again where another came between
    "worker/push/pipeline.py",  # the end of one push, for as long as the lease lasts
    "worker/push/run.py",  # the steps of one push, which the account queue contains
    "worker/dispatch/dispatcher.py",  # one push after the other, each contained
}


def test_nothing_is_swallowed() -> None:
    """Whoever catches every `Exception` does something with it."""
    silent = [
        f"{path.name}:{node.lineno}"
        for path, node in _nodes("Exception")
        if isinstance(node, ast.ExceptHandler)
        and isinstance(node.type, ast.Name)
        and node.type.id in {"Exception", "BaseException"}
        and all(isinstance(each, ast.Pass | ast.Continue) for each in node.body)
    ]
    assert silent == []


def test_a_contained_fault_tells_its_traceback() -> None:
    with capture_logs() as logs:
        fault = contained(Where.PUSH, ValueError("a bug"), request_id="rsv_1")
    [line] = logs
    assert (line["error_id"], line["request_id"], line["where"]) == (fault.id, "rsv_1", "push")
    assert isinstance(line["exc_info"], ValueError)
    assert Outage(Where.PUSH, ManualClock()).faulted(ValueError()) > 0.0
