"""How all workers together throttle each account's PMS, from each worker's latest report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from forwarder.store.submissions.port import ThrottleState

if TYPE_CHECKING:
    from forwarder.store.deployment import RunningProcess

_CLOSED: Final = "closed"


@dataclass(frozen=True, slots=True)
class PmsState:
    """The throttling of one account's PMS.

    `left_alone`: at how many of `workers` its breaker is not closed, or its PMS asked for a pause; `reason`: why. `wait_seconds`:
    until the first of them asks it again, None where one is asking. `in_flight` pushes, of `limit` at the moment and `allowed`,
    and `requests_left` of `requests_burst` are sums: each worker counts by itself. None where nothing limits the rate.
    """

    workers: int
    left_alone: int
    reason: str | None
    wait_seconds: float | None
    in_flight: int
    limit: int
    allowed: int
    requests_left: float | None
    requests_burst: float | None

    @property
    def breaker(self) -> str:
        """One word: closed, open, or open at some."""
        if not self.left_alone:
            return _CLOSED
        return "open" if self.left_alone == self.workers else f"open at {self.left_alone} of {self.workers}"


def pms_states(processes: "Sequence[RunningProcess]", now: datetime) -> Mapping[str, PmsState]:
    """By account. Only accounts with recent pushes from live workers."""
    reported: dict[str, list[ThrottleState]] = {}
    for process in processes:
        if not process.silent(now):
            for each in process.throttles:
                reported.setdefault(each.account_id, []).append(each)
    return {account_id: _together(states) for account_id, states in reported.items()}


def _together(states: Sequence[ThrottleState]) -> PmsState:
    alone = [each for each in states if each.breaker != _CLOSED or each.reason is not None]
    waits = [each.wait_seconds for each in alone]
    limited = [each for each in states if each.requests_left is not None]
    return PmsState(
        workers=len(states),
        left_alone=len(alone),
        reason=next((each.reason for each in alone if each.reason), None),
        wait_seconds=None if None in waits else min((each for each in waits if each is not None), default=None),
        in_flight=sum(each.in_flight for each in states),
        limit=sum(each.limit for each in states),
        allowed=sum(each.allowed for each in states),
        requests_left=sum(each.requests_left or 0.0 for each in limited) if limited else None,
        requests_burst=sum(each.requests_burst or 0.0 for each in limited) if limited else None,
    )
