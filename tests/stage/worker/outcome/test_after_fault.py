"""What becomes of a row whose push raised an exception that nothing expects."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from forwarder.process.loops import Fault, Where
from forwarder.reservation.evidence import UNKNOWN_TARGET
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Status
from forwarder.store.submissions.port import Attempt, Ended, Postponed, Work, with_attempt
from forwarder.worker.outcome.policy import after_fault
from forwarder.worker.push.run import PushContext
from tests.support.worker.works import NOW, account, carried, work

FAULT = Fault("err_1", Where.PUSH, ValueError())
PUSH_SECONDS = 120.0


def faulted(row: Work, outcome: Outcome | None = None, **terms: Any) -> Ended | Postponed:
    return after_fault(PushContext(account(), row, outcome=outcome), FAULT, now=NOW, push_seconds=PUSH_SECONDS, **terms)


def tried(*reasons: str) -> tuple[Attempt, ...]:
    attempts: tuple[Attempt, ...] = ()
    for reason in reasons:
        attempts = with_attempt(attempts, "prepare", "2027-01-01T00:00:00.000Z", 0.0, Deferred(reason, "Then."))
    return attempts


@pytest.mark.parametrize(
    ("before", "possibly_sent", "minutes"),
    [
        ((), False, 1),
        (("internal_error",), False, 5),
        (("internal_error", "pms_unavailable"), False, 1),
        ((), True, 2),
        (("internal_error",), True, 5),
    ],
)
def test_it_is_tried_again_after_a_pause_that_grows_and_lets_a_push_settle(
    before: tuple[str, ...], possibly_sent: bool, minutes: int
) -> None:
    row = work(attempts=tried(*before), possibly_sent=possibly_sent)
    again = faulted(row)
    assert isinstance(again, Postponed)
    assert again.due_at == NOW + timedelta(minutes=minutes)
    assert [each.reason for each in again.attempts] == [*before, "internal_error"]


@pytest.mark.parametrize(("possibly_sent", "status"), [(False, Status.FAILED), (True, Status.IN_DOUBT)])
@pytest.mark.parametrize(("before", "last"), [(("internal_error", "internal_error"), False), ((), True)])
def test_after_the_third_fault_in_a_row_or_where_it_is_the_last_it_ends(
    before: tuple[str, ...], last: bool, possibly_sent: bool, status: Status
) -> None:
    row = work(attempts=tried(*before), possibly_sent=possibly_sent)
    final = faulted(row, last=last)
    assert isinstance(final, Ended)
    assert (final.status, final.look_at is not None) == (status, possibly_sent)
    assert isinstance(faulted(row, last=last, give_up=False), Postponed)


@pytest.mark.parametrize(
    ("target", "looked_up", "terms"),
    [
        (carried().text, True, {}),
        (carried().text, False, {"look": False}),
        (carried(reference=False).text, False, {}),
        (None, False, {}),
    ],
)
def test_what_was_sent_is_looked_up_where_the_row_says_how_to_find_it(
    target: str | None, looked_up: bool, terms: dict[str, bool]
) -> None:
    final = faulted(replace(work(), target=target), Confirmed("pms-1"), last=True, **terms)
    assert isinstance(final, Ended)
    assert (final.status, final.look_at is not None) == (Status.IN_DOUBT, looked_up)
    (push,) = final.evidence.open
    assert push.to.text == (target or UNKNOWN_TARGET.text)


def test_a_doubtful_answer_is_kept_as_such() -> None:
    again = faulted(replace(work(), target=carried().text), InDoubt("pms_timed_out", "No answer."))
    assert isinstance(again, Postponed)
    assert (again.due_at, [each.to for each in again.evidence.open]) == (NOW + timedelta(minutes=2), [carried()])
