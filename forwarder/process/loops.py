"""Tasks: loops that outlive outages and faults, group commit, waiting for the first of several, and yielding to the event loop. An
outage of something outside is retried. Any other exception is contained: see `forwarder/process/containment.py`."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import structlog

from forwarder.process import containment
from forwarder.process.clock import Clock
from forwarder.process.containment import FAULTS, Blame, Fault, Where, contained

T = TypeVar("T")
R = TypeVar("R")
_log = structlog.get_logger(__name__)
CROWD: Final = 3  # the size from which a batch counts as large


class Outage:
    """An outage of the loop or step `name`. Logs its first failure, its end, and every minute in between that it lasts. An
    unexpected exception is contained each time."""

    def __init__(self, name: Where, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._failures = self._faults = 0
        self._began = self._next_log = 0.0

    def failed(self, error: Exception) -> float:
        """Another failure because of an outage. Returns the seconds to pause."""
        name, now = self._name, self._clock.monotonic()
        self._failures += 1
        if self._failures == 1:
            self._began = self._next_log = now
        if now >= self._next_log:
            # Counted from the start of the outage, because intervals between lines would grow by the pauses.
            while self._next_log <= now:
                self._next_log += 60.0
            seconds = round(now - self._began, 1)
            error_of = {"error": str(error), "kind": type(error).__name__}
            _log.warning(f"{name}.interrupted", **error_of, failures=self._failures, seconds=seconds)
        return _pause(self._failures, 5.0)

    def faulted(self, error: BaseException) -> float:
        """An unexpected exception. Returns the seconds to pause: longer each time, up to a minute."""
        if isinstance(error, containment.Unworkable):  # contained already
            return error.pause_seconds
        fault = contained(self._name, error)
        self._faults += 1
        if self._faults >= containment.UNREADY_AFTER:
            containment.LOOPS.fails(self, self._name, fault.id)
        return _pause(self._faults, 60.0)

    def over(self) -> None:
        if self._failures:
            name, seconds = self._name, round(self._clock.monotonic() - self._began, 1)
            _log.info(f"{name}.resumed", failures=self._failures, seconds=seconds)
            self._failures = 0
        self.forget_faults()

    def forget_faults(self) -> None:
        """It works, or will not be retried."""
        if self._faults:
            self._faults = 0
            containment.LOOPS.works(self)


def _pause(failures: int, longest: float) -> float:
    return min(0.1 * 2.0 ** min(failures - 1, 10), longest) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret


async def keep_trying(
    step: Callable[[], Awaitable[R]],
    *,
    name: Where,
    clock: Clock,
    outages: tuple[type[Exception], ...],
    outage: Outage | None = None,
    contain: bool = False,
) -> R:
    """The result of `step`, which runs again after each of `outages`, and with `contain` after any other exception. Pauses grow to
    5 s, with jitter. `outage`: for a long-running `step`, which reports the end of an outage itself."""
    outage = outage or Outage(name, clock)
    while True:
        try:
            result = await step()
        except outages as error:
            await clock.sleep(outage.failed(error))
        except FAULTS as error:
            if not contain:
                raise
            await clock.sleep(outage.faulted(error))
        else:
            outage.over()
            return result


async def forever(
    step: Callable[[], Awaitable[None]],
    *,
    name: Where,
    clock: Clock,
    outages: tuple[type[Exception], ...],
    outage: Outage | None = None,
) -> None:
    """Runs `step` repeatedly until cancelled, through outages and faults. `step` does its own waiting. After a fault it pauses,
    longer each time, up to a minute; after `UNREADY_AFTER` in a row the process is unready until it works."""
    outage = outage or Outage(name, clock)
    try:
        while True:
            await keep_trying(step, name=name, clock=clock, outages=outages, outage=outage, contain=True)
    finally:
        outage.forget_faults()


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Returns when the first is done; cancels the others and waits until they have ended. Ignores what any of them raised."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Collection["asyncio.Future[Any]"]) -> None:
    """Cancels them, and returns when all have ended. Ignores what any of them raised."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def detached(work: Coroutine[Any, Any, R]) -> "asyncio.Task[R]":
    """A task that serves many requests: without the context of its creator (the request's name in log lines, enlisted writes)."""
    return asyncio.create_task(work, context=Context())


class TimeSlice:
    """How much a long computation does before it lets all ready tasks run, so that it does not delay other responses: as many
    bytes, read or written, as take a millisecond or two."""

    BYTES: Final = 16 * 1024

    def __init__(self) -> None:
        self._done = 0

    async def spend(self, work: int = BYTES) -> None:
        """`work`: bytes processed since the last call."""
        self._done += work
        if self._done >= self.BYTES:
            self._done = 0
            await asyncio.sleep(0)


_Waiting = tuple[T, asyncio.Future[R] | None]


@dataclass(eq=False, repr=False)
class Batcher(Generic[T, R]):
    """Group commit: flushes the items of many tasks in batches, one batch at a time, in order of arrival, and gives each task the
    result of its own item.

    The next batch collects items while one is being flushed: a lone item is flushed at once, and under load batches grow by
    themselves. After a large batch the next one collects for `pause_seconds` more, because the cost of a batch hardly depends on
    its size. `flush` returns one result for each item. If it raises one of `outages`, every waiter of that batch gets that
    exception. If it raises anything else, it is called again for halves of the batch, so that the others succeed; an item that
    raises on its own is `set_aside`, which returns its result, or its waiter gets the exception. With `blame`, if all raise and it
    is not their fault, the batch is kept, and retried until one succeeds."""

    flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]]
    where: Where
    max_items: int
    pause_seconds: float = 0.0
    outages: tuple[type[Exception], ...] = ()
    set_aside: Callable[[T, Fault], Awaitable[R]] | None = None
    blame: Blame | None = None

    def __post_init__(self) -> None:
        self._not_before = 0.0
        self._waiting: list[_Waiting[T, R]] = []
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """The result for `item`, once its batch is through. Cancelling the wait does not withdraw the item."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._start()
        return await future

    def post(self, *items: T) -> None:
        self._waiting += [(item, None) for item in items]
        self._start()

    def _start(self) -> None:
        if self._runner is None and self._waiting:
            self._runner = detached(self._run())

    async def drain(self) -> None:
        """Returns once everything submitted so far is flushed. Disables the pauses."""
        self.pause_seconds = self._not_before = 0.0
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while True:
                # At least one iteration of the event loop, so that items that become ready together are flushed together.
                await asyncio.sleep(max(self._not_before - clock(), 0.0))
                batch, self._waiting = self._waiting[: self.max_items], self._waiting[self.max_items :]
                try:
                    await self._until_workable(batch)
                except BaseException as error:  # Every waiter must get it, even a cancellation.
                    for _, future in batch:
                        if future is not None and not future.done():
                            future.set_exception(error)
                    if not isinstance(error, Exception):
                        raise
                if len(batch) >= CROWD:
                    self._not_before = clock() + self.pause_seconds
                if not self._waiting:
                    return
        finally:
            self._runner = None

    async def _until_workable(self, batch: Sequence[_Waiting[T, R]]) -> None:
        ends, blame = self._end_one, self.blame
        while True:
            try:
                return await containment.by_halves(
                    self._carry_out, batch, where=self.where, set_aside=ends, outages=self.outages, blame=blame
                )
            except containment.Unworkable as error:
                assert blame is not None  # noqa: S101 - without it nothing is found to be unworkable
                await blame.sleep(error.pause_seconds)

    async def _carry_out(self, batch: Sequence[_Waiting[T, R]]) -> None:
        results = await self.flush([item for item, _ in batch])
        for (_, future), result in zip(batch, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)

    async def _end_one(self, waiting: _Waiting[T, R], fault: Fault) -> None:
        item, future = waiting
        results: list[R] = []
        if self.set_aside is not None:
            try:
                results.append(await self.set_aside(item, fault))
            except FAULTS as error:
                fault = contained(self.where, error)
        if future is not None and not future.done():
            if results:
                future.set_result(results[0])
            else:
                future.set_exception(fault.error)
