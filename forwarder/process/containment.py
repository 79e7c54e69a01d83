"""Fault containment: a unit of outside work that raises an exception nobody expected is set aside alone, and its loop goes on.

A unit is a row, an event, a message, a webhook delivery, an account. Each contained fault gets an error id, which is in the log
line with the traceback and in what is recorded of the unit. `forwarder_contained_faults_total` counts them by where they happened.
A loop that fails `UNREADY_AFTER` times in a row makes its process not ready until it works again; it never ends the process.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any, Final, Generic, TypeVar

import structlog

from forwarder.observability import metrics

T = TypeVar("T")
K = TypeVar("K")

_log = structlog.get_logger(__name__)

UNREADY_AFTER: Final = 5
"""So many faults of one loop in a row, without a success between them, make the process not ready."""

_LONGEST_PAUSE_SECONDS: Final = 300.0

INTERNAL_ERROR: Final = "internal_error"
"""The reason, and the class of dead letters, of what was set aside."""


@unique
class Where(StrEnum):
    """Every loop, every batch and every kind of unit whose faults are contained."""

    # Loops of the worker.
    LEASE = "lease"
    RECOVERY_CHECK = "recovery_check"
    TOPIC = "topic"
    INTAKE = "intake"
    INTAKE_WATCH = "intake_watch"
    SWEEP = "sweep"
    REFILL = "refill"
    DEADLINES = "deadlines"
    CARDS = "cards"
    REPUBLISH = "republish"
    BREAKERS = "breakers"
    STANDING = "standing"
    STANDING_LAG = "standing_lag"
    RETENTION = "retention"
    # Loops of the notifier.
    WEBHOOK_EVENTS = "webhook_events"
    WEBHOOK_SWEEP = "webhook_sweep"
    WEBHOOK_PRUNE = "webhook_prune"
    # Loops of several roles.
    WAITERS = "waiters"
    SEALING_KEYS = "sealing_keys"
    REGISTER = "register"
    KEY_USES = "key_uses"
    RATE_LIMITS = "rate_limits"
    # Batches and units of the worker.
    CANCELLATIONS = "cancellations"
    DEAD_LETTERS = "dead_letters"
    CONFLICTS = "conflicts"
    ACCOUNT = "account"
    ADAPTER = "adapter"
    PUSH = "push"
    INTENTS = "intents"
    CARD_KEYS = "card_keys"
    OUTCOMES = "outcomes"
    OUTBOX = "outbox"
    PUBLISHED = "published"
    # Batches and units of the notifier.
    WEBHOOK_INTAKE = "webhook_intake"
    WEBHOOK_POST = "webhook_post"
    WEBHOOK_RECORDS = "webhook_records"
    WEBHOOK_ENDPOINT = "webhook_endpoint"
    # Elsewhere.
    CONSOLE = "console"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception that nobody expected, and the id by which the log has its traceback."""

    id: str
    where: Where
    error: BaseException

    def __str__(self) -> str:
        """For records and attempts. It does not quote the exception, which may quote what came from outside."""
        return f"Internal error {self.id} ({type(self.error).__name__})"


SetAside = Callable[[T, Fault], Awaitable[None]]
"""Gives a unit its visible end."""


def contained(where: Where, error: BaseException, **ids: Any) -> Fault:
    """Log `error` with its traceback under a new error id, and count it. `ids` tell which unit it is."""
    fault = Fault(f"err_{secrets.token_hex(6)}", where, error)
    metrics.CONTAINED_FAULTS.labels(where.value).inc()
    _log.error(
        "fault.contained", where=where.value, error_id=fault.id, kind=type(error).__name__, **ids, exc_info=error
    )
    return fault


async def by_halves(
    step: Callable[[Sequence[T]], Awaitable[None]],
    items: Sequence[T],
    *,
    where: Where,
    set_aside: SetAside[T],
    outages: tuple[type[Exception], ...] = (),
    refusals: tuple[type[Exception], ...] = (),
    refused: Callable[[T, Exception], Awaitable[None]] | None = None,
) -> None:
    """Carry out `step` for all of `items` at once; where it raises, for one half of them after the other, in their order, until
    each item that raises stands alone. It is `set_aside`, or `refused` where it raised one of the `refusals`, which are expected.

    `step` may be carried out again for items that it was carried out for before. Raises `outages` and nothing else.
    """
    try:
        await step(items)
    except outages:
        raise
    except Exception as error:
        if len(items) > 1:
            _log.warning("batch.split", where=where.value, count=len(items), kind=type(error).__name__)
            for half in (items[: len(items) // 2], items[len(items) // 2 :]):
                await by_halves(
                    step,
                    half,
                    where=where,
                    set_aside=set_aside,
                    outages=outages,
                    refusals=refusals,
                    refused=refused,
                )
        elif items:
            if refused is not None and isinstance(error, refusals):
                await refused(items[0], error)
            else:
                await set_aside(items[0], contained(where, error))
        else:
            raise


class Pauses(Generic[K]):
    """Units that raised, each of which is left alone for longer each time it does: from a second up to five minutes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._faults: dict[K, tuple[int, float]] = {}

    def resting(self, unit: K) -> bool:
        """Whether `unit` is to be left alone now."""
        return unit in self._faults and self._monotonic() < self._faults[unit][1]

    def faulted(self, unit: K) -> None:
        """`unit` raised once more."""
        count = self._faults.get(unit, (0, 0.0))[0] + 1
        self._faults[unit] = count, self._monotonic() + pause_after(count)

    def works(self, unit: K) -> None:
        """`unit` went through."""
        self._faults.pop(unit, None)


def pause_after(faults: int) -> float:
    """Seconds to leave a unit alone after so many faults."""
    return min(2.0 ** min(faults - 1, 16), _LONGEST_PAUSE_SECONDS)


class LoopHealth:
    """Which loops of this process fail over and over now."""

    def __init__(self) -> None:
        self._failing: dict[object, Where] = {}

    def failing(self) -> Sequence[str]:
        """Their names, sorted."""
        return sorted({where.value for where in self._failing.values()})

    def fails(self, loop: object, where: Where) -> None:
        """`loop` failed `UNREADY_AFTER` times in a row."""
        if loop not in self._failing:
            self._failing[loop] = where
            _log.error("loop.failing", where=where.value)

    def works(self, loop: object) -> None:
        """`loop` works again, or has ended."""
        where = self._failing.pop(loop, None)
        if where is not None:
            _log.info("loop.works_again", where=where.value)


LOOPS: Final = LoopHealth()
"""Those of this process."""
