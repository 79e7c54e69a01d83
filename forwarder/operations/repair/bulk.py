"""Repairs many submissions with one command, for the command line and the console: plans first, so that the operator sees what
would be done and refused; then repairs each on its own. A second run continues where the first stopped."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar, assert_never

from forwarder.operations.audit import Audit
from forwarder.process.clock import Clock
from forwarder.process.supervision import Stop
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.topics.port import LogUnavailable

if TYPE_CHECKING:
    from forwarder.store.submissions.repairs import Repairs

_AT_ONCE: Final = 200
_NAMED: Final = 50

T = TypeVar("T")
OnDone = Callable[[int], None]
"""Called with the number of further submissions processed."""


class CannotRepair(Exception):
    """This submission cannot be repaired this way; the others can. The message says why."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[T]):
    """The plan of a repair. `settled`: nothing left to do for these; `refused`: reasons by request id."""

    chosen: Sequence[T]
    settled: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def refusals(self) -> Mapping[str, int]:
        """How many were refused, by reason."""
        return Counter(self.refused.values())


@dataclass(slots=True)
class Outcome:
    """The result of a plan. `done`: changed by this run; `already`: had nothing left to change; `failed`: reasons by request id;
    `left`: not tried, because of `outage` or an interruption."""

    done: int = 0
    already: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0
    outage: str | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing failed and nothing is left."""
        return not self.failed and not self.left


async def run_each(
    chosen: Sequence[T],
    name: Callable[[T], str],
    repair: Callable[[T], Awaitable[bool]],
    *,
    stop: Stop,
    on_done: OnDone = lambda _count: None,
) -> Outcome:
    """Repairs each of `chosen` until `stop`, or an outage. `name` gives the request id; `repair` returns whether it changed
    anything, and raises `CannotRepair`."""
    outcome = Outcome()
    for number, each in enumerate(chosen):
        if stop.is_set():
            outcome.left = len(chosen) - number
            break
        try:
            if await repair(each):
                outcome.done += 1
            else:
                outcome.already += 1
        except CannotRepair as error:
            outcome.failed[name(each)] = str(error)
        except (StoreUnavailable, TenancyUnavailable, LogUnavailable) as error:
            outcome.left, outcome.outage = len(chosen) - number, str(error)
            break
        on_done(1)
    return outcome


# --- retrying now -------------------------------------------------------------------------------------------------------------


def plan_retry(found: Sequence[SubmissionSummary], *, now: str) -> Plan[SubmissionSummary]:
    """Chooses those of `found` that wait until after `now` (ISO 8601): for a push, a look-up, or the cancellation in their PMS."""
    chosen: list[SubmissionSummary] = []
    settled: list[str] = []
    refused: dict[str, str] = {}
    for each in found:
        why = None if each.held or each.due_at is not None else _nothing_due(each)
        if why is not None:
            refused[each.request_id] = why
        elif each.held or (each.due_at is not None and each.due_at <= now):
            settled.append(each.request_id)
        else:
            chosen.append(each)
    return Plan(chosen, settled, refused)


def _nothing_due(summary: SubmissionSummary) -> str:
    match summary.status:
        case Status.FAILED:
            return "FAILED: `forwarder dead-letters replay` puts it back"
        case Status.IN_DOUBT:
            return "IN_DOUBT, and its PMS cannot be asked: `forwarder submissions settle`"
        case Status.PENDING | Status.CONFIRMED | Status.REJECTED | Status.CANCELLED:
            return f"{summary.status.value}: nothing is left to do"
        case _:
            assert_never(summary.status)


class Retries:
    """Makes waiting submissions due at once. Does not change the account's rate limits, nor the wait after an ambiguous push."""

    def __init__(self, repairs: "Repairs", clock: Clock, audit: Audit) -> None:
        self._repairs = repairs
        self._clock = clock
        self._audit = audit

    async def run(self, plan: Plan[SubmissionSummary], *, stop: Stop, on_done: OnDone = lambda _count: None) -> Outcome:
        """Retries in batches, each in one transaction with an audit entry. Submissions that a worker has claimed meanwhile count as
        `already`."""
        outcome, chosen = Outcome(), plan.chosen
        for first in range(0, len(chosen), _AT_ONCE):
            some = chosen[first : first + _AT_ONCE]
            if stop.is_set():
                outcome.left = len(chosen) - first
                break
            try:
                done = await self._make_due(some)
            except StoreUnavailable as error:
                outcome.left, outcome.outage = len(chosen) - first, str(error)
                break
            outcome.done += done
            outcome.already += len(some) - done
            on_done(len(some))
        return outcome

    async def _make_due(self, some: Sequence[SubmissionSummary]) -> int:
        ids = [each.request_id for each in some]
        async with self._audit.operation("submissions.retry", count=len(ids), submissions=ids[:_NAMED]):
            return await self._repairs.make_due([each.id for each in some], now=self._clock.now())
