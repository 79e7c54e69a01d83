"""What a push tells of its PMS: whether that is well, is failing, or was not even asked. Pure."""

from collections.abc import Iterable
from typing import Final

from forwarder.pms.port import NOT_ABOUT_THE_PMS
from forwarder.reservation.value import value
from forwarder.store.submissions.work import Work
from forwarder.worker.dispatch.breaker import Health
from forwarder.worker.push.result import PushResult

_ANSWERS = {"confirmed", "rejected", "absent", "cancelled"}


@value(frozen=True, slots=True)
class HealthSignal:
    """What was found, and the reason for it where it is a bad one."""

    health: Health
    reason: str = ""


NOT_ATTEMPTED: Final = HealthSignal(Health.UNTOUCHED)


def health_signal(work: Work, pushed: PushResult) -> HealthSignal:
    """By the last that was seen of the PMS. A rule's refusal, a card that cannot be opened, or whatever else ended a push before
    it was asked, leaves it untouched: else a few foreign messages could shut an account's breaker."""
    if pushed.attempts[-1:] == work.attempts[-1:]:
        return NOT_ATTEMPTED
    last = pushed.attempts[-1]
    if last.action == "prepare":
        return NOT_ATTEMPTED
    if last.outcome in _ANSWERS:
        return HealthSignal(Health.WELL)
    if last.reason in NOT_ABOUT_THE_PMS:
        return HealthSignal(Health.UNKNOWN)
    return HealthSignal(Health.FAILING, last.reason or "")


def combined_signal(findings: Iterable[HealthSignal]) -> HealthSignal:
    """What a push of several tells: well, where one of them was answered; else the first that tells anything."""
    told = [finding for finding in findings if finding.health is not Health.UNTOUCHED]
    well = [finding for finding in told if finding.health is Health.WELL]
    return next(iter(well or told), NOT_ATTEMPTED)
