"""Fault containment: sets aside the one unit of outside work that raised an unexpected exception, and lets its loop continue.

A unit is a row, an event, a message, a webhook delivery, an account. Each contained fault gets an error id, which is in the log
line with the traceback and in the unit's record. `forwarder_contained_faults_total` counts them by place. A loop that fails
`UNREADY_AFTER` times in a row makes its process unready until it works again; it never ends the process.

If many units raise and none succeeds, the cause is this process (a defect of the release, a missing table, a broken library) and
not the units: see `Blame`. Then nothing is set aside."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import structlog

from forwarder.observability import metrics

T = TypeVar("T")
K = TypeVar("K")
_log = structlog.get_logger(__name__)
UNREADY_AFTER: Final = 5  # how many faults of one loop in a row, without a success in between, make the process unready
SYSTEMIC_AFTER: Final = 5
"""How many units in a row may raise at one place, without a success, before this process is at fault and not the units."""
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


class Pauses(Generic[K]):
    """Backs off from units that raised: for longer each time, from a second up to five minutes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._faults: dict[K, tuple[int, float]] = {}

    def resting(self, unit: K) -> bool:
        return unit in self._faults and self._monotonic() < self._faults[unit][1]

    def faulted(self, unit: K) -> None:
        count = self._faults.get(unit, (0, 0.0))[0] + 1
        self._faults[unit] = count, self._monotonic() + pause_after(count)

    def works(self, unit: K) -> None:
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
