"""From what a push came to, to what is recorded: final, or to be tried again. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never

from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Rejected, Status
from forwarder.reservation.problem import Problem
from forwarder.reservation.record import Standing, compose_record
from forwarder.reservation.result import ResultEvent, result_data
from forwarder.runtime.clock import iso
from forwarder.store.port import Final, Postponed, Work
from forwarder.worker.push import Pushed
from forwarder.worker.retry import next_try


def verdict(work: Work, pushed: Pushed, *, now: datetime, settle_seconds: float, luck: float) -> Final | Postponed:
    """What to record of `pushed`. `settle_seconds`: how long an ambiguous push is left alone; `luck`: jitter in [0, 1)."""
    match pushed.outcome:
        case Confirmed(pms_id, answer):
            return _final(work, pushed, now, Status.CONFIRMED, pms_reservation_id=pms_id, answer=answer)
        case Rejected(problem):
            named = replace(problem, request_id=work.submission.request_id)
            return _final(work, pushed, now, Status.REJECTED, problem=named)
        case Deferred(reason, detail, wait):
            return _again(work, pushed, now, wait, luck) or _give_up(work, pushed, now, reason, detail)
        case InDoubt(reason, detail) if pushed.settleable:
            return _again(work, pushed, now, settle_seconds, luck) or _in_doubt(work, pushed, now, reason, detail)
        case InDoubt(reason, detail):
            return _in_doubt(work, pushed, now, reason, detail)
        case _:
            assert_never(pushed.outcome)


def _again(work: Work, pushed: Pushed, now: datetime, at_least: float | None, luck: float) -> Postponed | None:
    attempt = max(len(pushed.attempts), 1)
    due = next_try(attempt, now=now, deadline=work.deadline_at, at_least_seconds=at_least, luck=luck)
    return None if due is None else Postponed(work.id, pushed.attempts, now, due, pushed.doubtful)


def _give_up(work: Work, pushed: Pushed, now: datetime, reason: str, detail: str) -> Final:
    if pushed.doubtful:
        return _in_doubt(work, pushed, now, reason, detail)
    problem = Problem(
        "delivery_failed",
        "The reservation could not be delivered",
        503,
        f"The PMS could not be made to take it before the deadline. Last: {reason}: {detail}",
        work.submission.request_id,
    )
    return _final(work, pushed, now, Status.FAILED, problem=problem)


def _in_doubt(work: Work, pushed: Pushed, now: datetime, reason: str, detail: str) -> Final:
    problem = Problem(
        "in_doubt",
        "The reservation may or may not have been made",
        503,
        f"The PMS did not say, and could not be asked. It is not sent again until that is settled. Last: {reason}: {detail}",
        work.submission.request_id,
    )
    return _final(work, pushed, now, Status.IN_DOUBT, problem=problem)


def _final(
    work: Work,
    pushed: Pushed,
    now: datetime,
    status: Status,
    *,
    pms_reservation_id: str | None = None,
    answer: Mapping[str, Any] | None = None,
    problem: Problem | None = None,
) -> Final:
    submission, moment = work.submission, iso(now)
    described = None if problem is None else problem.as_json()
    standing = Standing(
        work.id,
        submission.request_id,
        status,
        work.created_at,
        moment,
        pms_reservation_id=pms_reservation_id,
        answer=answer,
        problem=described,
    )
    record = compose_record(submission.reservation, standing)
    data = result_data(
        request_id=submission.request_id,
        workspace_id=submission.workspace_id,
        account_id=submission.account_id,
        status=status,
        record=record,
    )
    event = ResultEvent(
        submission.request_id, work.revision + 1, status, submission.key, moment, data, submission.traceparent
    )
    return Final(work.id, status, pushed.attempts, now, record, event, pms_reservation_id, described)
