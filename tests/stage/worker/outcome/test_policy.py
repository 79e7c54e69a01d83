"""From what a push came to, to what is recorded: every row of the table, in time and too late."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace as replace_struct

from forwarder.reservation.evidence import NOTHING_SENT, LookUp, NextStep, Park
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected, Status
from forwarder.reservation.problems import Problem
from forwarder.store.submissions.port import Ended, PmsReservation, Postponed, Work, with_attempt
from forwarder.worker.outcome.policy import LAST_CALL, LOOKED_FOR, decide
from forwarder.worker.push.run import PushContext
from tests.support.worker.works import NOW, account, doubtful, work

MADE = Confirmed("pms-1", {"paymentUrl": "https://pay.test/1"})
REFUSED = Rejected(Problem("room_unavailable", "Taken", 409, "These nights are taken."))
LATER = Deferred("pms_unavailable", "The PMS is down.")
UNSURE = InDoubt("pms_timed_out", "No answer.")
ROW = work(7)
DOUBT = doubtful()
IN_DOUBT = replace(work(7, possibly_sent=True), status=Status.IN_DOUBT, revision=1)


LOOK = LookUp(30.0)
PARK = Park("cannot_be_checked", "It cannot be searched.")


def pushed(row: Work, outcome: Outcome, *, possibly_sent: bool = False, step: NextStep = LOOK) -> PushContext:
    attempts = with_attempt((), "create", "2027-01-01T00:00:00.000Z", 0.1, outcome)
    if not possibly_sent:
        settled = replace(row, evidence=NOTHING_SENT)
        return PushContext(account(), settled, outcome=outcome, attempts=attempts)
    return PushContext(account(), row, outcome=outcome, attempts=attempts, evidence=DOUBT, step=step)


def decided(push: PushContext, *, at: datetime = NOW) -> Ended | Postponed:
    return decide(push, now=at, jitter=0.0)


def test_confirmed_is_final_with_record_and_event() -> None:
    final = decided(pushed(ROW, MADE))
    assert isinstance(final, Ended)
    assert (final.status, final.pms_reservation_id, final.look_at) == (Status.CONFIRMED, "pms-1", None)
    assert final.event.data["reservation"]["paymentUrl"] == "https://pay.test/1"
    assert final.event.event_id == f"{ROW.submission.request_id}.1"


def test_rejected_is_final_and_says_why() -> None:
    final = decided(pushed(ROW, REFUSED))
    assert isinstance(final, Ended)
    assert final.status is Status.REJECTED
    assert final.problem is not None
    assert (final.problem["code"], final.problem["requestId"]) == ("room_unavailable", ROW.submission.request_id)


def test_an_ambiguous_push_is_left_alone_before_it_is_looked_into() -> None:
    push = pushed(ROW, UNSURE, possibly_sent=True)
    assert decided(push) == Postponed(push.work, push.attempts, NOW, NOW + timedelta(seconds=31), DOUBT)


def test_a_deferred_push_is_tried_again_no_earlier_than_the_pms_asked() -> None:
    push = pushed(ROW, replace(LATER, retry_after_seconds=60.0))
    assert decided(push) == Postponed(push.work, push.attempts, NOW, NOW + timedelta(seconds=61))


def test_the_pauses_grow_with_the_tries() -> None:
    tried = replace(ROW, tries=6)
    again = decide(pushed(tried, LATER), now=NOW, jitter=0.5)
    assert isinstance(again, Postponed)
    assert again.due_at == NOW + timedelta(seconds=64)


@pytest.mark.parametrize(("possibly_sent", "status"), [(False, Status.FAILED), (True, Status.IN_DOUBT)])
def test_at_the_deadline_it_failed_or_if_it_may_have_been_made_is_in_doubt(possibly_sent: bool, status: Status) -> None:
    at = ROW.deadline_at - LAST_CALL
    final = decided(pushed(ROW, replace(LATER, retry_after_seconds=60.0), possibly_sent=possibly_sent), at=at)
    assert isinstance(final, Ended)
    assert final.status is status
    assert final.problem is not None
    assert "pms_unavailable" in final.problem["detail"]
    assert final.look_at == (at + timedelta(seconds=61) if possibly_sent else None)


def test_what_can_come_to_rest_only_after_the_deadline_is_in_doubt_and_looked_for_then() -> None:
    at = ROW.deadline_at - timedelta(seconds=20)
    final = decided(pushed(ROW, UNSURE, possibly_sent=True), at=at)
    assert isinstance(final, Ended)
    assert (final.status, final.look_at) == (Status.IN_DOUBT, at + timedelta(seconds=31))


@pytest.mark.parametrize("at", [NOW, ROW.deadline_at])
def test_what_cannot_be_looked_for_is_left_to_an_operator(at: datetime) -> None:
    final = decided(pushed(ROW, UNSURE, possibly_sent=True, step=PARK), at=at)
    assert isinstance(final, Ended)
    assert (final.status, final.look_at) == (Status.IN_DOUBT, None)


def test_what_is_in_doubt_is_confirmed_when_it_is_found() -> None:
    final = decided(pushed(IN_DOUBT, MADE), at=IN_DOUBT.deadline_at)
    assert isinstance(final, Ended)
    assert (final.status, final.event.revision) == (Status.CONFIRMED, 2)


@pytest.mark.parametrize("early", [timedelta(0), timedelta(hours=1)])
def test_what_is_in_doubt_failed_when_it_is_surely_not_there(early: timedelta) -> None:
    """Whatever a wall clock says of its deadline: what was told to be in doubt is only looked for, and never sent."""
    final = decided(pushed(IN_DOUBT, Deferred("deadline_passed", "")), at=IN_DOUBT.deadline_at - early)
    assert isinstance(final, Ended)
    assert final.status is Status.FAILED


@pytest.mark.parametrize("outcome", [LATER, UNSURE])
def test_what_is_in_doubt_and_was_not_found_out_is_looked_for_again_until_it_is_an_operators(outcome: Outcome) -> None:
    again = decided(pushed(IN_DOUBT, outcome, possibly_sent=True), at=IN_DOUBT.deadline_at)
    assert isinstance(again, Postponed)
    assert again.due_at == IN_DOUBT.deadline_at + timedelta(seconds=31)
    at = IN_DOUBT.deadline_at + LOOKED_FOR
    push = pushed(IN_DOUBT, outcome, possibly_sent=True)
    assert decided(push, at=at) == Postponed(push.work, push.attempts, at, None, DOUBT)
    unsearchable = decided(pushed(IN_DOUBT, outcome, possibly_sent=True, step=PARK), at=IN_DOUBT.deadline_at)
    assert isinstance(unsearchable, Postponed)
    assert unsearchable.due_at is None


def test_other_reservations_that_the_pms_shows_are_in_the_event() -> None:
    final = decided(pushed(ROW, replace(MADE, doubles=("pms-2",))))
    assert isinstance(final, Ended)
    assert (final.doubles, final.event.data["otherPmsReservationIds"]) == (("pms-2",), ["pms-2"])
    assert "otherPmsReservationIds" not in decided(pushed(ROW, MADE)).event.data  # type: ignore[union-attr]


def test_what_is_in_doubt_says_what_is_known() -> None:
    known = DOUBT.absent("2027-01-01T00:02:00.000Z", 120.0)
    final = decided(replace_struct(pushed(ROW, UNSURE, possibly_sent=True, step=PARK), evidence=known))
    assert isinstance(final, Ended)
    assert final.problem is not None
    for said in ("gave no whole answer at 2027-01-01T00:00:00.000Z", "looked up once", "cannot_be_checked"):
        assert said in final.problem["detail"]
    assert final.event.data["reservation"]["problem"] == final.problem  # which webhooks receive


def refused_in_words(row: Work, times: int, action: str = "create", detail: str = "It says: no pets") -> PushContext:
    """As often in a row; an attempt in other words was before."""
    outcome = Deferred("pms_refused_in_words", detail)
    attempts = with_attempt(
        (), action, "2027-01-01T00:00:00.000Z", 0.1, Deferred("pms_refused_in_words", "Other words")
    )
    for _ in range(times):
        attempts = with_attempt(attempts, action, "2027-01-01T00:00:00.000Z", 0.1, outcome)
    return PushContext(account(), row, outcome=outcome, attempts=attempts)


def test_the_same_no_in_unknown_words_is_the_answer_the_third_time() -> None:
    assert isinstance(decided(refused_in_words(ROW, 2)), Postponed)
    final = decided(refused_in_words(ROW, 3))
    assert isinstance(final, Ended)
    assert final.status is Status.REJECTED
    assert final.problem is not None
    assert (final.problem["code"], final.problem["detail"]) == ("pms_refused", "It says: no pets")


def test_a_no_is_the_same_although_it_numbers_the_requests() -> None:
    push = refused_in_words(ROW, 0)
    for trace in ("8f3a-1", "17b2", "2027-01-01T00:00:00Z"):
        push.outcome = Deferred("pms_refused_in_words", f"It says: no pets (trace {trace})")
        push.attempts = with_attempt(push.attempts, "create", "2027-01-01T00:00:00.000Z", 0.1, push.outcome)
    final = decided(push)
    assert isinstance(final, Ended)
    assert final.status is Status.REJECTED


def test_the_same_no_to_a_cancellation_keeps_the_reservation() -> None:
    made = PmsReservation("pms-1", {})
    row = replace(ROW, pms_reservation=made)
    assert isinstance(decided(refused_in_words(row, 2, "cancel")), Postponed)
    final = decided(refused_in_words(row, 3, "cancel"))
    assert isinstance(final, Ended)
    assert final.status is Status.CONFIRMED
    assert final.cancel_problem is not None
    assert final.cancel_problem["code"] == "cancellation_refused"


def test_the_pauses_between_tries_of_a_cancellation_double() -> None:
    row = replace(ROW, pms_reservation=PmsReservation("pms-1", {}))
    due = [decide(pushed(replace(row, tries=tries), LATER), now=NOW, jitter=0.5) for tries in (1, 2, 3)]
    assert [each.due_at - NOW for each in due if isinstance(each, Postponed) and each.due_at] == [
        timedelta(seconds=seconds) for seconds in (2.0, 4.0, 8.0)
    ]


def test_the_pauses_between_look_ups_double() -> None:
    rows = [replace(IN_DOUBT, tries=tries) for tries in (1, 2, 3)]
    due = [decide(pushed(row, LATER, possibly_sent=True), now=NOW, jitter=0.5) for row in rows]
    assert [each.due_at - NOW for each in due if isinstance(each, Postponed) and each.due_at] == [
        timedelta(seconds=LOOK.seconds + seconds) for seconds in (2.0, 4.0, 8.0)
    ]


def test_what_may_have_been_made_is_not_refused_so() -> None:
    push = refused_in_words(ROW, 3)
    push.evidence, push.step = DOUBT, LookUp()
    assert isinstance(decided(push), Postponed)
