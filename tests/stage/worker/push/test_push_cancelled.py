"""What is to be cancelled: not sent any more, or found out about where it may have been sent, or cancelled where it was made."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from forwarder.pms.accounts import target_of
from forwarder.pms.port import Capabilities
from forwarder.reservation.evidence import NOTHING_SENT, Target
from forwarder.reservation.outcome import (
    Absent,
    CancellationStatus,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
    Status,
)
from forwarder.reservation.problems import Problem
from forwarder.reservation.record import SubmissionState, compose_record
from forwarder.store.submissions.port import Attempt, Ended, NotedCancellation, PmsReservation, Postponed, Work
from forwarder.worker.outcome.policy import decide
from forwarder.worker.push.run import NOT_ATTEMPTED, LeaseLost, PmsHealth, PushContext, health_signal, too_late
from tests.support.cases import for_each
from tests.support.worker.scripted_pms import FIND, KEY, NEITHER, ONLY_KEY, Answer, ScriptedPms, push_by, pusher_to
from tests.support.worker.works import BASE_URL, NOW, account, doubtful, submission, work

MADE = Confirmed("pms-1")
GONE = Cancelled()
NO = Rejected(Problem("cancellation_refused", "Too late", 409, "The guest has arrived."))
LATER = Deferred("pms_unavailable", "The PMS is down.", 60.0)
UNSURE = InDoubt("pms_timed_out", "No answer.")
UNCHECKABLE = InDoubt("cannot_be_checked", "It may have been made, and this PMS cannot be searched.")
CANCELLED_THERE = Deferred("cancelled_in_pms", "It was cancelled there since.")
ASKED = NotedCancellation("2027-01-01T00:00:30.000Z", "Ill.")
MOMENT = NOW + timedelta(hours=1)


def unmade(**fields: Any) -> Work:
    """A row that is to be cancelled, and of which nothing is known to have been made."""
    return replace(work(possibly_sent=fields.pop("possibly_sent", False)), cancellation=ASKED, **fields)


def made(**fields: Any) -> Work:
    """A row that was made, and is to be cancelled."""
    taken = submission(1)
    standing = SubmissionState(1, taken.request_id, Status.CONFIRMED, "then", "then", pms_reservation_id="pms-1")
    kept = PmsReservation("pms-1", compose_record(taken.reservation, standing) | {"paymentUrl": "https://pay.test/1"})
    row = replace(
        work(),
        cancellation=ASKED,
        status=Status.CONFIRMED,
        revision=1,
        pms_reservation=kept,
        deadline_at=NOW + timedelta(1),
    )
    return replace(row, **fields)


async def push(pms: ScriptedPms, row: Work, **settings: Any) -> PushContext:
    return await push_by(pusher_to(pms), account(**settings), row)


def ended(row: Work, outcome: Outcome | CancelOutcome, **more: Any) -> PushContext:
    return PushContext(account(), row, outcome=outcome, **more)


def decided(pushed: PushContext, **terms: Any) -> Ended | Postponed:
    return decide(pushed, now=terms.pop("now", MOMENT), jitter=0.5, **terms)


@pytest.mark.parametrize("capabilities", [KEY, FIND, ONLY_KEY, NEITHER])
async def test_what_was_never_sent_is_not_sent(capabilities: Capabilities) -> None:
    pms = ScriptedPms(capabilities)
    pushed = await push(pms, unmade())
    assert (pms.calls, pushed.outcome, pushed.possibly_sent, pushed.attempts) == ([], GONE, False, ())
    assert health_signal(pushed) == NOT_ATTEMPTED


async def test_nor_what_an_operator_would_have_to_repair_first() -> None:
    pushed = await push(ScriptedPms(KEY), unmade(), kind="unknown")
    assert pushed.outcome == GONE


DOUBTFUL = [
    # capabilities, what the PMS answers, what it is asked, outcome, still possibly sent
    (KEY, [MADE], ["find"], MADE, False),
    (KEY, [Absent()], ["find"], GONE, False),
    (KEY, [LATER], ["find"], LATER, True),
    (FIND, [MADE], ["find"], MADE, False),
    (FIND, [Absent()], ["find"], GONE, False),
    (FIND, [CANCELLED_THERE], ["find"], GONE, False),
    (ONLY_KEY, [MADE], ["create"], MADE, False),
    (ONLY_KEY, [NO], ["create"], NO, False),
    (ONLY_KEY, [LATER], ["create"], LATER, True),
    (ONLY_KEY, [UNSURE], ["create"], UNSURE, True),
    (NEITHER, [], [], UNCHECKABLE, True),
]


@for_each(("capabilities", "answers", "asked", "outcome", "possibly_sent"), DOUBTFUL)
async def test_what_may_have_been_made_is_found_out_about(
    capabilities: Capabilities, answers: list[Answer], asked: list[str], outcome: Answer, possibly_sent: bool
) -> None:
    pms = ScriptedPms(capabilities, *answers)
    pushed = await push(pms, unmade(evidence=doubtful(), pushing=True))
    assert (pms.calls, pushed.outcome, pushed.possibly_sent) == (asked, outcome, possibly_sent)


@pytest.mark.parametrize("late", [{"deadline_at": NOW}, {"status": Status.IN_DOUBT}])
async def test_nothing_is_asked_again_by_its_key_after_the_deadline_or_once_it_is_in_doubt(
    late: dict[str, Any],
) -> None:
    pms = ScriptedPms(ONLY_KEY)
    assert (await push(pms, unmade(possibly_sent=True, pushing=True, **late))).outcome == UNCHECKABLE
    assert pms.calls == []


@pytest.mark.parametrize(("found", "outcome"), [(MADE, MADE), (Absent(), GONE), (CANCELLED_THERE, GONE)])
async def test_what_is_in_doubt_is_looked_for(found: LookupOutcome, outcome: Outcome) -> None:
    pms = ScriptedPms(FIND, found)
    assert (await push(pms, unmade(possibly_sent=True, status=Status.IN_DOUBT))).outcome == outcome


@pytest.mark.parametrize("status", [Status.PENDING, Status.IN_DOUBT])
def test_what_was_surely_not_made_is_cancelled_with_record_and_event(status: Status) -> None:
    row = unmade(status=status, revision=3)
    final = decided(ended(row, GONE))
    assert isinstance(final, Ended)
    assert (final.status, final.cancelled_at, final.pms_reservation_id) == (Status.CANCELLED, MOMENT, None)
    said = {
        name: final.event.data["reservation"][name]
        for name in ("status", "cancelledAt", "updatedAt", "pmsReservationId")
    }
    moment = "2027-01-01T01:00:00.000Z"
    assert said == {"status": "CANCELLED", "cancelledAt": moment, "updatedAt": moment, "pmsReservationId": None}
    assert (final.event.type, final.event.revision) == ("reservation.cancelled.v1", 4)
    assert final.event.data["cancellation"] == {
        "status": "DONE",
        "requestedAt": ASKED.requested_at,
        "reason": "Ill.",
        "problem": None,
    }


def test_whose_deadline_is_brought_forward_does_not_fail() -> None:
    row = unmade(deadline_at=NOW)
    final = decided(ended(row, too_late(), attempts=row.attempts))
    assert isinstance(final, Ended)
    assert (final.status, final.event.type) == (Status.CANCELLED, "reservation.cancelled.v1")


def test_what_may_have_been_made_by_its_deadline_is_in_doubt_as_ever() -> None:
    row = unmade(deadline_at=NOW, possibly_sent=True)
    final = decided(ended(row, too_late(), attempts=row.attempts, evidence=row.evidence))
    assert isinstance(final, Ended)
    assert final.status is Status.IN_DOUBT


def test_what_is_found_is_confirmed_first() -> None:
    final = decided(ended(unmade(possibly_sent=True), MADE))
    assert isinstance(final, Ended)
    assert (final.status, final.event.type) == (Status.CONFIRMED, "reservation.confirmed.v1")
    assert "cancellation" not in final.event.data


async def test_what_was_made_is_cancelled_under_the_id_that_the_pms_gave_it() -> None:
    pms = ScriptedPms(FIND, GONE)
    pushed = await push(pms, made())
    assert (pms.calls, pms.cancelled, pushed.outcome) == (["cancel"], ["pms-1"], GONE)
    assert [(attempt.action, attempt.outcome) for attempt in pushed.attempts] == [("cancel", "cancelled")]
    assert health_signal(pushed).health is PmsHealth.WELL


async def test_its_rules_are_not_asked_again() -> None:
    """The card that booking-sync needs for such a reservation is erased by now."""
    pms = ScriptedPms(FIND, GONE)
    row = replace(made(), submission=submission(1, morChannel="PMS"))
    assert (await push(pms, row, kind="booking-sync")).outcome == GONE
    assert pms.bookings[0].card is None


async def test_a_doubt_from_before_changes_nothing() -> None:
    """Its worker died while it cancelled: it is cancelled again, never made again."""
    pms = ScriptedPms(KEY, GONE)
    assert (await push(pms, made(evidence=doubtful(), pushing=True))).outcome == GONE
    assert pms.calls == ["cancel"]


async def test_nothing_is_sent_once_the_lease_is_lost() -> None:
    pms = ScriptedPms(FIND, GONE)
    with pytest.raises(LeaseLost):
        await push_by(pusher_to(pms, may_send=lambda _: False), account(), made())
    assert pms.calls == []


async def test_a_pms_that_takes_no_cancellations_is_not_asked() -> None:
    pms = ScriptedPms(NEITHER)
    pushed = await push(pms, made())
    assert isinstance(pushed.outcome, Rejected)
    assert (pushed.outcome.problem.code, pms.calls) == ("cancellation_not_supported", [])


async def test_an_adapters_bug_is_no_more_than_a_delay() -> None:
    pushed = await push(ScriptedPms(FIND, RuntimeError("bug")), made())
    assert isinstance(pushed.outcome, Deferred)
    assert pushed.outcome.reason == "adapter_failed"
    assert isinstance(decided(pushed), Postponed)


def test_a_cancelled_reservation_keeps_the_rest_of_its_record() -> None:
    row = made()
    final = decided(ended(row, GONE))
    assert isinstance(final, Ended)
    assert row.pms_reservation is not None
    moment = "2027-01-01T01:00:00.000Z"
    assert final.event.data["reservation"] == {
        **row.pms_reservation.record,
        "status": "CANCELLED",
        "cancelledAt": moment,
        "updatedAt": moment,
    }
    assert list(final.event.data["reservation"]) == list(row.pms_reservation.record)
    assert (final.status, final.cancelled_at, final.pms_reservation_id) == (Status.CANCELLED, MOMENT, "pms-1")
    assert (final.event.type, final.event.event_id) == ("reservation.cancelled.v1", f"{row.submission.request_id}.2")
    assert final.event.data["cancellation"]["status"] == CancellationStatus.DONE


def test_one_that_is_refused_stays_confirmed_and_says_why() -> None:
    row = made()
    final = decided(ended(row, NO))
    assert isinstance(final, Ended)
    assert row.pms_reservation is not None
    assert (final.status, final.event.data["reservation"], final.problem) == (
        Status.CONFIRMED,
        row.pms_reservation.record,
        None,
    )
    assert (final.pms_reservation_id, final.cancelled_at) == ("pms-1", None)
    assert final.cancel_problem == NO.problem.as_json()
    assert (final.event.type, final.event.revision) == ("reservation.cancellation_refused.v1", 2)
    assert final.event.data["status"] == "CONFIRMED"
    assert final.event.data["cancellation"]["status"] == "REFUSED"
    assert final.event.data["cancellation"]["problem"]["code"] == "cancellation_refused"


def test_one_that_is_put_off_is_tried_again_no_sooner_than_the_pms_says() -> None:
    again = decided(ended(made(), LATER))
    assert isinstance(again, Postponed)
    assert again.due_at is not None
    assert again.due_at >= MOMENT + timedelta(seconds=60)


def test_when_no_time_is_left_it_stays_confirmed_and_says_why() -> None:
    tried = (
        Attempt(1, "cancel", "then", 5, "deferred", "pms_timed_out", "No answer."),
        Attempt(2, "cancel", "then", 5, "deferred", "pms_unavailable", "The PMS is down."),
    )
    final = decided(ended(made(deadline_at=MOMENT), too_late(), attempts=tried))
    assert isinstance(final, Ended)
    assert (final.status, final.event.type) == (Status.CONFIRMED, "reservation.cancellation_failed.v1")
    assert final.cancel_problem is not None
    assert (final.cancel_problem["code"], final.cancel_problem["status"]) == ("cancellation_failed", 503)
    assert "pms_unavailable: The PMS is down." in final.cancel_problem["detail"]
    assert final.event.data["cancellation"]["status"] == "FAILED"


@pytest.mark.parametrize(
    "elsewhere", [Target("another address", "us"), target_of("generic", BASE_URL, "another tenant's", KEY)]
)
async def test_only_the_pms_that_made_it_is_asked_to_cancel_it(elsewhere: Target) -> None:
    pms = ScriptedPms(KEY)
    row = made(evidence=NOTHING_SENT.found("pms-1", elsewhere, "2027-01-01T00:00:00.000Z"))
    pushed = await push(pms, row)
    assert pms.calls == []
    assert isinstance(pushed.outcome, Deferred)
    assert pushed.outcome.reason == "pms_is_another"
    assert "--same-pms" in pushed.outcome.detail
    pushed.work = replace(row, deadline_at=NOW)
    final = decided(pushed)
    assert isinstance(final, Ended)
    assert (final.status, (final.cancel_problem or {}).get("code")) == (Status.CONFIRMED, "cancellation_failed")


async def test_what_an_operator_says_is_the_same_pms_is_asked() -> None:
    pms = ScriptedPms(KEY, GONE)
    row = made(evidence=NOTHING_SENT.found("pms-1", Target("another address", "us"), "2027-01-01T00:00:00.000Z"))
    assert (await push(pms, row, same_pms_before=NOW + timedelta(1))).outcome == GONE


async def test_what_was_made_before_anybody_noted_where_is_cancelled_as_ever() -> None:
    assert (await push(ScriptedPms(KEY, GONE), made())).outcome == GONE


async def test_a_cancellation_that_is_not_sent_says_nothing_of_the_pms() -> None:
    row = made(evidence=NOTHING_SENT.found("pms-1", Target("another address", "us"), "2027-01-01T00:00:00.000Z"))
    pushed = await push(ScriptedPms(KEY), row)
    assert health_signal(pushed) == NOT_ATTEMPTED
    late = decided(ended(replace(row, deadline_at=NOW), too_late(), attempts=pushed.attempts, evidence=row.evidence))
    assert isinstance(late, Ended)
    assert "--same-pms" in (late.cancel_problem or {})["detail"]
