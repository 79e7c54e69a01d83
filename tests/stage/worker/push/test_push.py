"""One push: rules first, look before pushing where it is in doubt, and never a blind second time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from forwarder.pms.accounts import target_of
from forwarder.pms.port import LEASE_LOST, LOOKS_ALIKE, Capabilities
from forwarder.reservation.booking import ReferenceForm
from forwarder.reservation.evidence import UNKNOWN_TARGET, LookUp, Park, SendAgain, Target
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt, LookupOutcome, Outcome, Rejected, Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import SealedCard
from forwarder.store.submissions.port import Ended, Work
from forwarder.worker.outcome.policy import decide
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.push.run import CancelledMeanwhile, LeaseLost, too_late
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.worker.scripted_pms import (
    FIND,
    KEY,
    NEITHER,
    ONLY_KEY,
    CardsInTheClear,
    ScriptedPms,
    push_by,
    pusher_to,
)
from tests.support.worker.works import BASE_URL, NOW, account, carried, doubtful, work

MADE = Confirmed("pms-1", {"paymentUrl": "https://pay.test/1"})
REFUSED = Rejected(Problem("room_unavailable", "Taken", 409, "These nights are taken."))
LATER = Deferred("pms_unavailable", "The PMS is down.", 60.0)
IN_WORDS = Deferred("pms_refused_in_words", "It says: taken")
PERHAPS_OURS = InDoubt(
    "refused_in_doubt", "The PMS refused it, perhaps because of an earlier push of it: It says: taken"
)
UNSURE = InDoubt("pms_timeout", "No answer.")
NOT_MADE = Deferred("not_made", "The PMS had not made it, and it is not sent again.")
UNSEARCHED = InDoubt("cannot_be_checked", "It may have been made, by a push that this PMS cannot be searched for.")
UNCHECKABLE = InDoubt("cannot_be_checked", "It may have been made, and this PMS cannot be searched.")


@for_each("answer", [MADE, REFUSED, LATER, IN_WORDS, UNSURE])
async def test_a_first_push_creates_once_and_says_what_came_of_it(answer: Outcome) -> None:
    pms = ScriptedPms(FIND, answer)
    pushed = await push_by(pusher_to(pms), account(), work())
    assert (pushed.outcome, pms.calls) == (answer, ["create"])
    assert pushed.possibly_sent is (answer is UNSURE)
    assert [attempt.action for attempt in pushed.attempts] == ["create"]


CASES = [
    # capabilities, what the PMS answers, what it is asked, outcome, still possibly sent
    (KEY, [MADE], ["create"], MADE, False),
    (KEY, [LATER], ["create"], LATER, True),
    (FIND, [MADE], ["find"], MADE, False),
    (FIND, [LATER], ["find"], LATER, True),
    (FIND, [Absent(), MADE], ["find", "create"], MADE, False),
    (FIND, [Absent(), UNSURE], ["find", "create"], UNSURE, True),
    (FIND, [Absent(), LATER], ["find", "create"], LATER, False),
    (FIND, [Absent(), REFUSED, MADE], ["find", "create", "find"], MADE, False),
    (FIND, [Absent(), REFUSED, Absent()], ["find", "create", "find"], REFUSED, False),
    (FIND, [Absent(), REFUSED, LATER], ["find", "create", "find"], LATER, True),
    (FIND, [Absent(), IN_WORDS], ["find", "create"], PERHAPS_OURS, True),
    (KEY, [IN_WORDS], ["create"], PERHAPS_OURS, True),
    (ONLY_KEY, [IN_WORDS], ["create"], IN_WORDS, True),
]


@for_each(("capabilities", "answers", "asked", "outcome", "possibly_sent"), CASES)
async def test_a_possibly_sent_push_is_resolved_by_what_the_pms_can_do(
    capabilities: Capabilities,
    answers: list[Outcome | LookupOutcome],
    asked: list[str],
    outcome: Outcome,
    possibly_sent: bool,
) -> None:
    pms = ScriptedPms(capabilities, *answers)
    pushed = await push_by(pusher_to(pms), account(), work(possibly_sent=True))
    assert (pms.calls, pushed.outcome, pushed.possibly_sent) == (asked, outcome, possibly_sent)


async def test_where_nothing_can_tell_a_possibly_sent_push_is_never_made_again() -> None:
    pms = ScriptedPms(NEITHER)
    pushed = await push_by(pusher_to(pms), account(), work(possibly_sent=True, pushing=True))
    assert pms.calls == []
    assert isinstance(pushed.outcome, InDoubt)
    final = decide(pushed, now=NOW, jitter=0.5)
    assert isinstance(final, Ended)
    assert final.status is Status.IN_DOUBT


TOO_LATE = too_late()
LATE_CASES = [
    # capabilities, may have been made, what the PMS answers, what it is asked, outcome, still possibly sent
    (KEY, False, [], [], TOO_LATE, False),
    (KEY, True, [MADE], ["find"], MADE, False),
    (FIND, True, [Absent()], ["find"], TOO_LATE, False),
    (FIND, True, [LATER], ["find"], LATER, True),
    (ONLY_KEY, True, [], [], UNCHECKABLE, True),
    (NEITHER, True, [], [], UNCHECKABLE, True),
    (NEITHER, False, [], [], TOO_LATE, False),
]


@for_each(("capabilities", "pushing", "answers", "asked", "outcome", "possibly_sent"), LATE_CASES)
async def test_after_its_deadline_nothing_is_sent_but_look_ups(
    capabilities: Capabilities,
    pushing: bool,
    answers: list[Outcome | LookupOutcome],
    asked: list[str],
    outcome: Outcome,
    possibly_sent: bool,
) -> None:
    pms = ScriptedPms(capabilities, *answers)
    row = replace(work(possibly_sent=pushing, pushing=pushing), deadline_at=NOW)
    pushed = await push_by(pusher_to(pms), account(), row)
    assert (pms.calls, pushed.outcome, pushed.possibly_sent) == (asked, outcome, possibly_sent)


@pytest.mark.parametrize(
    ("capabilities", "answers", "asked", "outcome"),
    [
        (KEY, [MADE], ["find"], MADE),
        (FIND, [Absent()], ["find"], NOT_MADE),
        (ONLY_KEY, [], [], UNCHECKABLE),
        (NEITHER, [], [], UNCHECKABLE),
    ],
)
async def test_what_is_in_doubt_is_only_looked_for(
    capabilities: Capabilities, answers: list[Outcome | LookupOutcome], asked: list[str], outcome: Outcome
) -> None:
    pms = ScriptedPms(capabilities, *answers)
    pushed = await push_by(pusher_to(pms), account(), replace(work(possibly_sent=True), status=Status.IN_DOUBT))
    assert (pms.calls, pushed.outcome) == (asked, outcome)


CHANGED = [
    # what the earlier push carried, what the PMS can do today, what it is asked
    (carried(key=False), NEITHER, []),  # options changed: it cannot be searched any more
    (carried(key=False), ONLY_KEY, []),  # a key that the earlier push did not carry
    (carried(key=False), KEY, ["find"]),
    (carried(reference=False), FIND, []),  # the earlier one cannot be found by a reference that it did not carry
    (carried(reference=False), KEY, ["create"]),
    (
        carried(key=False),
        replace(FIND, reference_form=ReferenceForm(30)),
        [],
    ),  # nor by one that it carried in another form
    (UNKNOWN_TARGET, KEY, []),
    (carried(kind="hostaway"), KEY, []),  # sent somewhere else
    (target_of("generic", BASE_URL, "another tenant's", KEY), KEY, []),
    (target_of("generic", BASE_URL, None, KEY), KEY, ["create"]),  # by an older version, which noted no credential
]


@for_each(("sent", "capabilities", "asked"), CHANGED)
async def test_an_earlier_push_is_judged_by_what_it_carried_whatever_the_pms_can_do_today(
    sent: Target, capabilities: Capabilities, asked: list[str]
) -> None:
    pms = ScriptedPms(capabilities, LATER)
    row = replace(work(), evidence=doubtful(sent))
    pushed = await push_by(pusher_to(pms), account(), row)
    assert pms.calls == asked
    assert (pushed.possibly_sent, pushed.evidence) == (True, row.evidence)
    if not asked:
        assert isinstance(pushed.outcome, InDoubt)


def test_two_credentials_that_are_objects_may_be_of_two_accounts() -> None:
    ours, another = (
        target_of("booking-sync", BASE_URL, f'{{"clientId":"app","refreshToken":"{of}"}}', FIND) for of in "ab"
    )
    assert not ours.same_pms(another)


@pytest.mark.parametrize("capabilities", [KEY, FIND, ONLY_KEY, NEITHER])
async def test_what_is_left_in_doubt_tells_what_it_carried(capabilities: Capabilities) -> None:
    pushed = await push_by(pusher_to(ScriptedPms(capabilities, UNSURE)), account(), work())
    key, reference = capabilities.idempotent_create, capabilities.find_by_reference
    assert [push.to for push in pushed.evidence.open] == [carried(key=key, reference=reference)]
    assert isinstance(pushed.step, SendAgain if key else LookUp if reference else Park)


async def test_of_two_in_doubt_only_what_both_carried_is_of_use() -> None:
    row = replace(work(), evidence=doubtful(carried(reference=False)))
    pushed = await push_by(pusher_to(ScriptedPms(KEY, UNSURE)), account(), row)
    assert isinstance(pushed.step, SendAgain)
    late = await push_by(
        pusher_to(ScriptedPms(KEY)), account(), replace(row, deadline_at=NOW, evidence=pushed.evidence)
    )
    assert late.outcome == UNSEARCHED


async def test_what_only_looks_like_it_is_left_to_an_operator_and_looked_up_every_ten_minutes() -> None:
    alike = Deferred(LOOKS_ALIKE, "Another guest, the same nights.")
    pushed = await push_by(pusher_to(ScriptedPms(FIND, alike)), account(), work(possibly_sent=True))
    assert pushed.outcome == InDoubt(alike.reason, alike.detail)
    assert pushed.step == Park(alike.reason, alike.detail, LookUp(600.0))


async def test_what_the_pms_gave_an_id_is_looked_up_with_it() -> None:
    for given in ("pms-9", None):
        pms = ScriptedPms(FIND, MADE)
        evidence = work().evidence.after(
            replace(UNSURE, pms_reservation_id=given), carried(), "2027-01-01T00:00:00.000Z"
        )
        await push_by(pusher_to(pms), account(), replace(work(), evidence=evidence))
        assert [booking.pms_id for booking in pms.bookings] == [given]


async def test_what_can_only_be_repeated_waits_for_the_push_to_time_out() -> None:
    clock = ManualClock()
    pusher, row = pusher_to(ScriptedPms(ONLY_KEY), clock=clock, settings=WorkerSettings()), work(possibly_sent=True)
    assert pusher.seconds_to_wait(account(), row) == 30.0
    await clock.advance(20.0)
    assert pusher.seconds_to_wait(account(), row) == 10.0


async def test_what_is_found_counts_as_made_by_the_last_push() -> None:
    row = replace(work(), evidence=doubtful(carried(key=False)).after(UNSURE, carried(), "2027-01-01T00:00:00.000Z"))
    pushed = await push_by(pusher_to(ScriptedPms(FIND, MADE)), account(), row)
    assert pushed.evidence.origin is not None
    assert pushed.evidence.origin.to == carried()


async def test_what_was_looked_for_in_vain_is_in_doubt_for_the_new_push_alone() -> None:
    row = replace(work(), evidence=doubtful(carried(key=False)))
    pushed = await push_by(pusher_to(ScriptedPms(KEY, Absent(), UNSURE)), account(), row)
    assert [push.to for push in pushed.evidence.open] == [carried()]


@pytest.mark.parametrize(
    ("found", "code"), [(MADE, None), (Absent(), "card_required"), (LATER, None)], ids=["made", "absent", "unknown"]
)
async def test_a_rule_that_was_tightened_refuses_only_what_was_surely_not_made(
    found: LookupOutcome, code: str | None
) -> None:
    row = replace(work(morChannel="PMS"), evidence=doubtful(carried(key=False, kind="booking-sync")))
    pms = ScriptedPms(FIND, found, Absent())
    pushed = await push_by(pusher_to(pms), account(kind="booking-sync"), row)
    assert (pms.calls[0], "create" in pms.calls) == ("find", False)
    if code is None:
        assert pushed.outcome == found
    else:
        assert isinstance(pushed.outcome, Rejected)
        assert pushed.outcome.problem.code == code


@pytest.mark.parametrize("deadline_at", [NOW, NOW + timedelta(days=1)], ids=["late", "in time"])
async def test_what_is_in_doubt_and_not_there_failed_before_its_deadline_as_after_it(deadline_at: datetime) -> None:
    row = replace(work(possibly_sent=True), status=Status.IN_DOUBT, deadline_at=deadline_at)
    pushed = await push_by(pusher_to(ScriptedPms(FIND, Absent())), account(), row)
    final = decide(pushed, now=NOW, jitter=0.5)
    assert isinstance(final, Ended)
    assert final.status is Status.FAILED


async def test_where_nothing_can_tell_the_intent_is_durable_before_the_first_byte() -> None:
    intents: list[int] = []
    pms = ScriptedPms(NEITHER, MADE)
    await push_by(pusher_to(pms, intents=intents), account(), work(5))
    assert (intents, pms.calls) == ([5], ["create"])
    with pytest.raises(LeaseLost):
        await push_by(pusher_to(ScriptedPms(NEITHER), intents=intents), account(), work(13))


async def test_nothing_is_sent_once_the_lease_is_lost() -> None:
    pms = ScriptedPms(KEY, MADE)
    with pytest.raises(LeaseLost):
        await push_by(pusher_to(pms, may_send=lambda _: False), account(), work())
    assert pms.calls == []


async def test_nothing_is_sent_once_its_cancellation_was_ingested() -> None:
    pms = ScriptedPms(NEITHER, MADE)
    with pytest.raises(CancelledMeanwhile):
        await push_by(pusher_to(pms, is_cancelled=lambda _: True), account(), work())
    assert pms.calls == []


async def test_what_the_adapter_put_off_because_the_lease_was_lost_on_the_way_is_left() -> None:
    lost = Deferred(LEASE_LOST, "It was held no longer.")
    for pms, row in (
        (ScriptedPms(FIND, lost), work()),
        (ScriptedPms(FIND, lost), work(possibly_sent=True)),
        (ScriptedPms(FIND, Absent(), lost), work(possibly_sent=True)),
    ):
        with pytest.raises(LeaseLost):
            await push_by(pusher_to(pms), account(), row)


async def test_an_adapters_bug_costs_one_row_and_leaves_it_in_doubt() -> None:
    pushed = await push_by(pusher_to(ScriptedPms(FIND, RuntimeError("bug"))), account(), work())
    assert isinstance(pushed.outcome, InDoubt)
    assert pushed.outcome.reason == "adapter_failed"
    assert "RuntimeError" in pushed.outcome.detail


async def test_a_rule_refuses_before_anything_is_sent() -> None:
    pms = ScriptedPms(FIND)
    pushed = await push_by(pusher_to(pms), account(kind="booking-sync"), work(morChannel="PMS"))
    assert isinstance(pushed.outcome, Rejected)
    assert pushed.outcome.problem.code == "card_required"
    assert pms.calls == []


async def test_the_card_is_opened_for_the_push_alone() -> None:
    pms = ScriptedPms(KEY, MADE)
    sealed = SealedCard("key", "4111111111111111")
    await push_by(pusher_to(pms), account(), work(card=sealed, cardDetails={"cardNumber": "411111******1111"}))
    booking = pms.bookings[0]
    assert booking.card is not None
    assert booking.card.card_number == "4111111111111111"
    assert "cardDetails" not in booking.fields
    assert "4111111111111111" not in repr(booking)


@pytest.mark.parametrize(
    ("kind", "sealed", "reason"), [("unknown", "x", "unknown_kind"), ("generic", "damaged", "card_key_missing")]
)
async def test_what_an_operator_can_repair_is_deferred(kind: str, sealed: str, reason: str) -> None:
    pushed = await push_by(pusher_to(ScriptedPms(KEY)), account(kind=kind), work(card=SealedCard("key", sealed)))
    assert isinstance(pushed.outcome, Deferred)
    assert pushed.outcome.reason == reason
    assert [(attempt.action, attempt.reason) for attempt in pushed.attempts] == [("prepare", reason)]


async def test_of_very_many_attempts_the_last_are_kept_under_their_numbers() -> None:
    row = work()
    for _ in range(60):
        pushed = await push_by(pusher_to(ScriptedPms(KEY, LATER)), account(), row)
        row = replace(row, attempts=pushed.attempts)
    assert [attempt.number for attempt in row.attempts] == list(range(11, 61))


def carded(said: str, **more: Any) -> Work:
    return work(card=SealedCard("row", said), cardDetails={"cardNumber": "411111******1111"}, **more)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("gone", "card_gone"),
        ("code gone", "card_code_gone"),
        ("moved", "card_not_bound"),
        ("away", "store_unavailable"),
    ],
)
async def test_without_its_card_nothing_is_sent_and_the_reason_is_told(said: str, reason: str) -> None:
    pms = ScriptedPms(KEY)
    pushed = await push_by(pusher_to(pms), account(), carded(said))
    assert isinstance(pushed.outcome, Deferred)
    assert (pushed.outcome.reason, pushed.possibly_sent, pms.calls) == (reason, False, [])


@pytest.mark.parametrize("said", ["gone", "code gone", "moved"])
async def test_what_may_have_been_made_is_looked_for_and_not_made_without_its_card(said: str) -> None:
    row = carded(said, possibly_sent=True)
    pms = ScriptedPms(KEY, Absent())
    pushed = await push_by(pusher_to(pms), account(), row)
    assert isinstance(pushed.outcome, Deferred)
    assert (pushed.possibly_sent, pms.calls) == (False, ["find"])
    made = await push_by(pusher_to(ScriptedPms(KEY, MADE)), account(), row)
    assert isinstance(made.outcome, Confirmed)


@pytest.mark.parametrize("kind", ["beds24", "hostaway", "cloudbeds", "booking-sync"])
async def test_a_card_that_is_not_sent_to_the_pms_is_not_missed(kind: str) -> None:
    pushed = await push_by(pusher_to(ScriptedPms(KEY, MADE)), account(kind=kind), _whole_property(carded("gone")))
    assert isinstance(pushed.outcome, Confirmed)


@pytest.mark.parametrize(
    ("answer", "used"), [(MADE, True), (UNSURE, True), (LATER, False)], ids=["made", "doubt", "not"]
)
async def test_a_security_code_comes_back_only_where_the_push_surely_did_not_use_it(
    answer: Outcome, used: bool
) -> None:
    cards, row = CardsInTheClear(), carded("4111111111111111")
    await push_by(pusher_to(ScriptedPms(KEY, answer), cards=cards), account(), row)
    whose = [row.submission.request_id]
    assert (cards.used_of, cards.put_back_of) == ((whose, []) if used else ([], whose))


async def test_a_security_code_comes_back_where_the_lease_was_lost_before_anything_was_sent() -> None:
    cards, row = CardsInTheClear(), carded("4111111111111111")
    with pytest.raises(LeaseLost):
        await push_by(pusher_to(ScriptedPms(KEY), may_send=lambda _: False, cards=cards), account(), row)
    assert cards.put_back_of == [row.submission.request_id]


def _whole_property(row: Work) -> Work:
    """As kinds without rooms take it."""
    fields = {**row.submission.reservation, "roomId": row.submission.reservation["propertyId"], "morChannel": "SELF"}
    return replace(row, submission=replace(row.submission, reservation=fields))


async def test_the_next_look_up_counts_from_the_last_open_push() -> None:
    clock = ManualClock()
    pms = ScriptedPms(FIND, LATER, Absent(), UNSURE)
    pusher = pusher_to(pms, clock=clock, settings=WorkerSettings())
    row = work(possibly_sent=True)
    assert pusher.seconds_to_wait(account(), row) == 30.0
    await clock.advance(50.0)
    assert (await push_by(pusher, account(), row)).step == LookUp(0.0)
    looked = replace(row, evidence=row.evidence.absent("2027-01-01T00:02:00.000Z", 120.0))
    await clock.advance(200.0)
    pushed = await push_by(pusher, account(), looked)
    assert (pms.calls, pushed.outcome) == (["find", "find", "create"], UNSURE)
    assert pushed.step == LookUp(30.0), "a new push may take its time again"


async def test_what_is_not_shown_says_how_often_it_was_looked_up() -> None:
    clock = ManualClock()
    pusher = pusher_to(ScriptedPms(FIND, Absent()), clock=clock, settings=WorkerSettings())
    row = replace(work(), evidence=doubtful().after(UNSURE, carried(), "2027-01-01T00:00:00.000Z"))
    pusher.seconds_to_wait(account(), row)
    await clock.advance(40.0)
    outcome = (await push_by(pusher, account(), row)).outcome
    assert isinstance(outcome, InDoubt)
    assert outcome.detail.startswith("The PMS does not show it. It was looked up once since then")
