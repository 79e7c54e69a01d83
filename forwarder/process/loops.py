"""Tasks: loops that outlive outages, group commit, waiting for whichever comes first, and yielding to the event loop.

What fails because something outside is away is tried again; what fails as a bug ends the process.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

import structlog

from forwarder.process.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

_log = structlog.get_logger(__name__)

CROWD: Final = 3
"""Items in one batch: with fewer than that there is little to share."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_STILL_SECONDS = 60.0


class Outage:
    """Of what is called `name`, while it lasts: how often it failed, since when. The first failure is logged, the end, and in
    between every minute that it still lasts."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._began = self._next_log = 0.0

    def failed(self, error: Exception) -> float:
        """Once more; for how many seconds to leave it alone now."""
        name, now = self._name, self._clock.monotonic()
        self._failures += 1
        if self._failures == 1:
            self._began = self._next_log = now
        if now >= self._next_log:
            # Counted from the beginning, not from the last line: those minutes would grow by the pauses.
            while self._next_log <= now:
                self._next_log += _STILL_SECONDS
            seconds = round(now - self._began, 1)
            error_of = {"error": str(error), "kind": type(error).__name__}
            _log.warning(f"{name}.interrupted", **error_of, failures=self._failures, seconds=seconds)
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10), _LONGEST_PAUSE_SECONDS)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret

    def over(self) -> None:
        """It works."""
        if self._failures:
            name, seconds = self._name, round(self._clock.monotonic() - self._began, 1)
            _log.info(f"{name}.resumed", failures=self._failures, seconds=seconds)
            self._failures = 0


async def keep_trying(
    step: Callable[[], Awaitable[None]],
    *,
    name: str,
    clock: Clock,
    outages: tuple[type[Exception], ...],
    outage: Outage | None = None,
) -> None:
    """Run `step` once, again after each of `outages`, until it returns. Pauses grow to 5 s, with jitter. `outage`: of a `step` that
    works for long without returning, and so says itself when it is over."""
    outage = outage or Outage(name, clock)
    while True:
        try:
            await step()
        except outages as error:
            await clock.sleep(outage.failed(error))
        else:
            outage.over()
            return


async def by_halves(
    step: Callable[[Sequence[T]], Awaitable[None]],
    items: Sequence[T],
    *,
    name: str,
    refusal: type[Exception],
    set_aside: Callable[[T, Exception], Awaitable[None]],
) -> None:
    """Carry out `step` for all of `items` at once; where it raises `refusal`, for one half of them after the other, until each that
    is refused stands alone and is `set_aside`. The others are carried out in their order."""
    try:
        await step(items)
    except refusal as error:
        if len(items) == 1:
            await set_aside(items[0], error)
            return
        _log.error(f"{name}.batch_refused", count=len(items), error=str(error), kind=type(error).__name__)
        for half in (items[: len(items) // 2], items[len(items) // 2 :]):
            await by_halves(step, half, name=name, refusal=refusal, set_aside=set_aside)


async def forever(
    step: Callable[[], Awaitable[None]],
    *,
    name: str,
    clock: Clock,
    outages: tuple[type[Exception], ...],
    outage: Outage | None = None,
) -> None:
    """Run `step` again and again, through outages, as `keep_trying` does. `step` does its own waiting."""
    while True:
        await keep_trying(step, name=name, clock=clock, outages=outages, outage=outage)


async def first_of(*awaitables: Awaitable[Any]) -> None:
    """Return when the first is done; the others are cancelled, and have ended. What any of them raised is passed over."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)


async def cancel_all(tasks: Collection["asyncio.Future[Any]"]) -> None:
    """Cancel them, and return when all have ended. What any of them raised is passed over."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def detached(work: Coroutine[Any, Any, R]) -> "asyncio.Task[R]":
    """A task that serves many, whoever happens to start it: nothing of that one's context (the name of its request in log lines,
    what it enlisted) is in it."""
    return asyncio.create_task(work, context=Context())


class TimeSlice:
    """How much a long piece of work does before it lets others have the event loop, so that their responses are not held up by it:
    as many bytes, read or written, as take a millisecond or two."""

    BYTES: Final = 16 * 1024

    def __init__(self) -> None:
        self._done = 0

    def used_up(self, work: int) -> bool:
        """Whether it is time to `yield_to_loop`. `work` is what was done since the last call, in bytes."""
        self._done += work
        if self._done < self.BYTES:
            return False
        self._done = 0
        return True


async def yield_to_loop() -> None:
    """Let all tasks run that are ready to."""
    await asyncio.sleep(0)


class Batcher(Generic[T, R]):
    """Group commit: what many tasks want done goes down in one batch, and each of them learns what became of its own part.

    Collects items and passes them on in batches, one batch at a time, in the order of their coming.

    While one batch is under way the next one gathers: a lone item goes at once, and under load batches grow by themselves; after a
    crowd the next batch gathers for `pause_seconds` more, since what a batch costs hardly goes by its size.
    `flush` returns one result for each item. Whatever it raises, every waiter of that batch gets.
    """

    def __init__(
        self, flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]], *, max_items: int, pause_seconds: float = 0.0
    ) -> None:
        self._flush = flush
        self._max_items = max_items
        self._pause_seconds = pause_seconds
        self._not_before = 0.0
        self._waiting: list[tuple[T, asyncio.Future[R] | None]] = []
        self._runner: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """The result for `item`, once its batch is through. Giving up waiting does not take the item back."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._start()
        return await future

    def post(self, *items: T) -> None:
        """As `submit`, for whom the results are all the same."""
        self._waiting += [(item, None) for item in items]
        self._start()

    def _start(self) -> None:
        if self._runner is None and self._waiting:
            self._runner = detached(self._run())

    async def drain(self) -> None:
        """Return once everything submitted so far is through. Nothing pauses any more."""
        self._pause_seconds = self._not_before = 0.0
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while True:
                # One iteration of the event loop at least, so that what became ready together goes together.
                await asyncio.sleep(max(self._not_before - clock(), 0.0))
                batch, self._waiting = self._waiting[: self._max_items], self._waiting[self._max_items :]
                await self._run_one(batch)
                if len(batch) >= CROWD:
                    self._not_before = clock() + self._pause_seconds
                if not self._waiting:
                    return
        finally:
            self._runner = None

    async def _run_one(self, batch: list[tuple[T, asyncio.Future[R] | None]]) -> None:
        try:
            results = await self._flush([item for item, _ in batch])
        except BaseException as error:  # Each waiter must learn of it, a cancellation too.
            for _, future in batch:
                if future is not None and not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), result in zip(batch, results, strict=True):
            if future is not None and not future.done():
                future.set_result(result)
