"""Loops that outlive outages and faults, and group commit. Also waiting for the first of several, and yielding to the event loop.

An outage of something outside is retried. Any other exception is a fault, and is contained: the one unit of outside work that
raised it (a row, an event, a message, a webhook delivery, an account) is set aside, and its loop continues. Each fault gets an
error id, which is in the log line with the traceback and in the unit's record. `forwarder_contained_faults_total` counts them by
place. A loop that fails `UNREADY_AFTER` times in a row makes its process unready until it works again; it never ends the process.

If many units raise and none succeeds, the cause is this process (a defect of the release, a missing table, a broken library) and
not the units: see `Blame`. Then nothing is set aside."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import structlog

from forwarder.observability import metrics
from forwarder.process.clock import Clock

T = TypeVar("T")
R = TypeVar("R")
_log = structlog.get_logger(__name__)
UNREADY_AFTER: Final = 5  # how many faults of one loop in a row, without a success in between, make the process unready
SYSTEMIC_AFTER: Final = 5
"""How many units in a row may raise at one place, without a success, before this process is at fault and not the units."""
CROWD: Final = 3  # the size from which a batch counts as large
FAULTS: Final = (Exception, asyncio.CancelledError)
"""To catch before `contained`: libraries raise `CancelledError` in tasks that were not cancelled, as from a future of their own."""


Where = StrEnum(
    "Where",
    # Loops of the worker.
    "LEASE RECOVERY_CHECK TOPIC STORE INTAKE INTAKE_WATCH SWEEP REFILL DEADLINES CARDS REPUBLISH BREAKERS RATE_LOANS "
    "STANDING STANDING_LAG RETENTION "
    # Loops of the notifier, and of several roles.
    "WEBHOOK_EVENTS WEBHOOK_SWEEP WAITERS SEALING_KEYS REGISTER KEY_USES RATE_LIMITS "
    # Batches and units of the worker.
    "CANCELLATIONS DEAD_LETTERS CONFLICTS ACCOUNT ADAPTER PUSH INTENTS CARD_KEYS OUTCOMES OUTBOX PUBLISHED "
    # Batches and units of the notifier; elsewhere.
    "WEBHOOK_INTAKE WEBHOOK_POST WEBHOOK_RECORDS WEBHOOK_ENDPOINT CONSOLE RECOVERY",
)
"""Every loop, every batch and every kind of unit whose faults are contained. The values are the names in small letters."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An unexpected exception, and the id under which the log has its traceback."""

    id: str
    where: Where
    error: Exception

    def __str__(self) -> str:
        """For records and attempts. Does not quote the exception, which may quote outside data."""
        return f"Internal error {self.id} ({type(self.error).__name__})"


def contained(where: Where, error: BaseException, **ids: Any) -> Fault:
    """Logs `error` with its traceback under a new error id, and counts it. `ids` identify the unit. Raises as `as_fault`."""
    fault = Fault(f"err_{secrets.token_hex(6)}", where, as_fault(error))
    metrics.CONTAINED_FAULTS.labels(where.value).inc()
    kind, error = type(fault.error).__name__, fault.error
    _log.error("fault.contained", where=where.value, error_id=fault.id, kind=kind, **ids, exc_info=error)
    return fault


class StrayCancellation(Exception):
    """A `CancelledError` in a task that was not cancelled."""


def as_fault(error: BaseException) -> Exception:
    """`error`, or a `StrayCancellation`. Raises `error` again if it is the cancellation of the running task."""
    if isinstance(error, Exception):
        return error
    task = asyncio.current_task()
    if not isinstance(error, asyncio.CancelledError) or (task is not None and task.cancelling()):
        raise error
    stray = StrayCancellation("raised in a task that was not cancelled")
    stray.__cause__ = error
    return stray


class Unworkable(Exception):
    """Every unit raised at one place: this process is at fault, and none was set aside. `pause_seconds`: until the next try."""

    def __init__(self, where: Where, fault: Fault, pause_seconds: float) -> None:
        super().__init__(f"nothing goes through at {where.value}: {fault}")
        self.pause_seconds = pause_seconds


class Blame:
    """Decides, for one place, whether units that raised are at fault. They are if others succeeded, or if they are few; after
    `SYSTEMIC_AFTER` in a row without a success this process is at fault, and is unready until a unit succeeds."""

    def __init__(self, where: Where, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.where, self.sleep = where, sleep
        self.in_a_row = self._rounds = 0

    def works(self) -> None:
        self.in_a_row = self._rounds = 0
        LOOPS.works(self.where)

    def on_units(self, failed: int) -> bool:
        """Whether `failed` more failures, without a success, can still be the units' own fault."""
        self.in_a_row += failed
        return self.in_a_row < SYSTEMIC_AFTER

    def outage(self, fault: Fault) -> Unworkable:
        """Makes the process unready: it is at fault, as `fault` shows."""
        self._rounds += 1
        # Keyed by place: a restarted worker has a new `Blame`, which reports when the place works again.
        LOOPS.fails(self.where, self.where, fault.id)
        return Unworkable(self.where, fault, min(pause_after(self._rounds), 60.0))


async def by_halves(
    step: Callable[[Sequence[T]], Awaitable[None]],
    items: Sequence[T],
    *,
    where: Where,
    set_aside: Callable[[T, Fault], Awaitable[None]],
    outages: tuple[type[Exception], ...] = (),
    refusals: tuple[type[Exception], ...] = (),
    refused: Callable[[T, Exception], Awaitable[None]] | None = None,
    blame: Blame | None = None,
) -> None:
    """Runs `step` for all of `items` at once; if it raises, for one half after the other, in order, down to single items. An item
    whose error is one of the expected `refusals` is `refused`. All other failing items are `set_aside` at the end; with `blame`,
    only if they are at fault themselves, and after a few retries if none succeeded. `step` may run again for items that it already
    ran for. Raises `outages`, and `Unworkable` with `blame`."""
    if not items:
        return
    went_through = 0

    async def carry_out(items: Sequence[T]) -> list[tuple[T, Exception]]:
        """Returns those that raised alone, and what."""
        nonlocal went_through
        try:
            await step(items)
        except outages:
            raise
        except FAULTS as raised:
            error = as_fault(raised)
            if len(items) > 1:
                _log.warning("batch.split", where=where.value, count=len(items), kind=type(error).__name__)
                middle = len(items) // 2
                return await carry_out(items[:middle]) + await carry_out(items[middle:])
            if refused is None or not isinstance(error, refusals):
                return [(items[0], error)]
            await refused(items[0], error)
        else:
            went_through += len(items)
        return []

    failed = await carry_out(items)
    if blame is not None:
        for pause in (0.2, 1.0):  # seconds: a fault may pass
            if not failed or went_through or blame.in_a_row + len(failed) >= SYSTEMIC_AFTER:
                break
            await blame.sleep(pause)
            failed = await carry_out([item for item, _ in failed])
        if went_through:
            blame.works()
        elif failed and not blame.on_units(len(failed)):
            error = failed[0][1]
            raise blame.outage(contained(where, error, count=len(failed))) from error
    for item, error in failed:
        await set_aside(item, contained(where, error))


class Pauses(Generic[T]):
    """Backs off from units that raised: for longer each time, from a second up to five minutes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._faults: dict[T, tuple[int, float]] = {}

    def resting(self, unit: T) -> bool:
        return unit in self._faults and self._monotonic() < self._faults[unit][1]

    def faulted(self, unit: T) -> None:
        count = self._faults.get(unit, (0, 0.0))[0] + 1
        self._faults[unit] = count, self._monotonic() + pause_after(count)

    def works(self, unit: T) -> None:
        self._faults.pop(unit, None)


def pause_after(faults: int) -> float:
    """The back-off of a unit in seconds after `faults` faults."""
    return min(2.0 ** min(faults - 1, 16), 300.0)


class LoopHealth:
    """The loops of this process that fail repeatedly now."""

    def __init__(self) -> None:
        self._failing: dict[object, Where] = {}

    def failing(self) -> Sequence[str]:
        return sorted({where.value for where in self._failing.values()})

    def fails(self, loop: object, where: Where, error_id: str) -> None:
        if loop not in self._failing:
            self._failing[loop] = where
            _log.error("loop.failing", where=where.value, error_id=error_id)

    def works(self, loop: object) -> None:
        if (where := self._failing.pop(loop, None)) is not None:
            _log.info("loop.works_again", where=where.value)


LOOPS: Final = LoopHealth()  # those of this process


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
        if isinstance(error, Unworkable):  # contained already
            return error.pause_seconds
        fault = contained(self._name, error)
        self._faults += 1
        if self._faults >= UNREADY_AFTER:
            LOOPS.fails(self, self._name, fault.id)
        return _pause(self._faults, 60.0)

    def over(self) -> None:
        if self._failures:
            name, seconds = self._name, round(self._clock.monotonic() - self._began, 1)
            _log.info(f"{name}.resumed", failures=self._failures, seconds=seconds)
            self._failures = 0
        self.forget_faults()

    def forget_faults(self) -> None:
        """It works, or will not be retried."""
        self._faults = 0
        LOOPS.works(self)


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
                    await self._flush(batch)
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

    async def _flush(self, batch: Sequence[_Waiting[T, R]]) -> None:
        async def carry_out(part: Sequence[_Waiting[T, R]]) -> None:
            results = await self.flush([item for item, _ in part])
            for (_, future), result in zip(part, results, strict=True):
                if future is not None and not future.done():
                    future.set_result(result)

        ends, blame = self._end_one, self.blame
        while True:
            try:
                return await by_halves(
                    carry_out, batch, where=self.where, set_aside=ends, outages=self.outages, blame=blame
                )
            except Unworkable as error:
                assert blame is not None  # noqa: S101 - without it nothing is found to be unworkable
                await blame.sleep(error.pause_seconds)

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
