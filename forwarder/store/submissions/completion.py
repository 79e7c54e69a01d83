"""The records of a decision about a submission, by a worker or an operator: the attempt, the event, and the completion. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from forwarder.process.clock import iso
from forwarder.reservation.cancellation import Cancellation, cancellation_status
from forwarder.reservation.evidence import NOTHING_SENT, Evidence
from forwarder.reservation.outcome import AnyOutcome, Confirmed, Status, describe
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.record import (
    MAX_DETAIL,
    MAX_ID,
    MAX_REASON,
    MAX_RECORD_BYTES,
    ResultEvent,
    SubmissionState,
    bounded,
    compose_record,
    cut_text,
    fits,
    fitting_record,
    result_data,
)
from forwarder.store.submissions.port import Attempt, Ended, Work

_ATTEMPTS_KEPT = 50
_USUAL_PROBLEM = 4 * 1024
_MAX_PROBLEM = 8 * 1024


def with_attempt(
    attempts: tuple[Attempt, ...], action: str, started_at: str, seconds: float, outcome: AnyOutcome
) -> tuple[Attempt, ...]:
    """`attempts` and one more. Keeps the last `_ATTEMPTS_KEPT`; numbering continues."""
    number = attempts[-1].number + 1 if attempts else 1
    name, reason, detail = describe(outcome)
    reason = reason and cut_text(reason, MAX_REASON)
    detail = detail and cut_text(detail, MAX_DETAIL)
    latest = Attempt(number, action, started_at, round(seconds * 1000), name, reason, detail)
    return (*attempts, latest)[-_ATTEMPTS_KEPT:]


def completed(
    work: Work,
    attempts: Sequence[Attempt],
    status: Status,
    *,
    now: datetime,
    confirmed: Confirmed | None = None,
    problem: Problem | None = None,
    cancel_by: datetime | None = None,
    evidence: Evidence = NOTHING_SENT,
) -> Ended:
    """The end of `work`, with its event. `confirmed`: the PMS's result, if confirmed; `problem`: the reason, if not.
    `cancel_by`, `evidence`: as in `Ended`."""
    moment = iso(now)
    described = None if problem is None else described_problem(replace(problem, request_id=work.submission.request_id))
    state = SubmissionState(
        work.record_id,
        work.submission.request_id,
        status,
        work.created_at,
        moment,
        cancelled_at=moment if status is Status.CANCELLED else "",
        pms_reservation_id=None if confirmed is None else cut_text(confirmed.pms_reservation_id, MAX_ID),
        pms_record=None if confirmed is None else confirmed.record,
        problem=described,
    )
    record = compose_record(work.submission.reservation, state)
    cancellation = cancellation_of(work, status) if status is Status.CANCELLED else None
    doubles = () if confirmed is None else confirmed.doubles
    event = event_of(work, status, moment, record, cancellation, doubles)
    return Ended(
        work.id,
        status,
        attempts,
        now,
        event,
        state.pms_reservation_id,
        described,
        cancelled_at=now if status is Status.CANCELLED else None,
        cancel_by=cancel_by,
        evidence=evidence,
        doubles=doubles,
    )


def event_of(
    work: Work,
    status: Status,
    moment: str,
    record: Mapping[str, Any],
    cancellation: Cancellation | None,
    doubles: Sequence[str] = (),
) -> ResultEvent:
    """The event for `work` at `moment` (ISO 8601), with the next revision. It always fits the store and the log: the PMS's data is
    cut if the record would be too large."""
    submission = work.submission

    def event(record: Mapping[str, Any]) -> ResultEvent:
        data = result_data(
            request_id=submission.request_id,
            workspace_id=submission.workspace_id,
            account_id=submission.account_id,
            status=status,
            record=record,
            cancellation=cancellation,
            doubles=doubles,
            similar_to=work.similar_to,
        )
        key, trace = submission.key, submission.trace
        return ResultEvent(submission.request_id, work.revision + 1, status, key, moment, data, trace)

    whole = event(record)
    try:
        if len(whole.written.record) <= MAX_RECORD_BYTES:  # as nearly always
            return whole
    except (ValueError, TypeError, RecursionError):
        pass  # it contains values that JSON cannot represent
    return event(fitting_record(record))


def described_problem(problem: Problem) -> dict[str, Any]:
    """`problem` in its stored form: long texts from a PMS are cut."""
    described = problem.as_json()
    return described if fits(described, _USUAL_PROBLEM) else bounded(described, _MAX_PROBLEM)


def cancellation_of(work: Work, status: Status, problem: Mapping[str, Any] | None = None) -> Cancellation | None:
    """The cancellation of `work` in `status`; None if none was requested."""
    if work.cancellation is None:
        return None
    asked = work.cancellation
    return Cancellation(cancellation_status(status, problem), asked.requested_at, asked.reason, problem)
