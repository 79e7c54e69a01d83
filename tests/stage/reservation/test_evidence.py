"""What is done next about a push that may have made something: every history of a small model PMS, and each rule by itself.

The model makes what it is asked, answers as its script says, shows a booking late, and may refuse our own second booking. Whatever
the script, it makes one booking at most, and no ending is wrong.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from forwarder.process.clock import iso
from forwarder.reservation import evidence as original
from forwarder.reservation.evidence import (
    NOTHING_SENT,
    UNKNOWN_TARGET,
    WORKER_LOST,
    Came,
    Create,
    Evidence,
    Facts,
    LookUp,
    NextStep,
    NotMade,
    Park,
    Push,
    Refuse,
    SendAgain,
    Target,
    next_step,
    read_evidence,
    read_target,
)
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected
from forwarder.reservation.problems import Problem
from tests.support.cases import for_each
from tests.support.profile import some

BEGAN = datetime(2027, 1, 1, tzinfo=UTC)
HOUR = 3600.0
DAY = 24 * HOUR
PUSH = 30.0
REFERENCE = Target("pms", "us", reference="id")
KEY = Target("pms", "us", key=True)
BOTH = Target("pms", "us", reference="id", key=True)
NEITHER = Target("pms", "us")
LOST = InDoubt("pms_timed_out", "No answer.")
NO = Rejected(Problem("room_unavailable", "Taken", 409, "These nights are taken."))
IN_WORDS = Deferred("pms_refused_in_words", "It says: taken")
YES = InDoubt("pms_answer_not_understood", "", made=True, status=201)


def at(seconds: float) -> str:
    return iso(BEGAN + timedelta(seconds=seconds))


def step(
    known: Evidence, facts: Facts, *, seconds: float = 0.0, waited: float | None = None, may_create: bool = True
) -> NextStep:
    now = BEGAN + timedelta(seconds=seconds)
    return next_step(known, facts, now, seconds if waited is None else waited, may_create=may_create)


# --- the model ---


@dataclass(frozen=True)
class Habits:
    """`answers`: to creates, in their order, the last of them from then on. `shows_after`, `commits_after`: seconds. `shows`:
    whether it ever shows a booking. `one_only`: a second one is refused because of the first; `in_words`: in words that its adapter
    does not know. `key_seconds`: how long keys last."""

    answers: tuple[str, ...] = ("ok",)
    shows_after: float = 0.0
    commits_after: float = 0.0
    shows: bool = True
    one_only: bool = False
    in_words: bool = False
    key_seconds: float = DAY


@dataclass
class ModelPms:
    target: Target
    habits: Habits
    made: list[float] = field(default_factory=list)
    """When each booking was committed."""
    creates: int = 0

    def create(self, now: float) -> Outcome:
        answer = self.habits.answers[min(self.creates, len(self.habits.answers) - 1)]
        self.creates += 1
        kept = self.target.key and self.made and now < self.made[0] + self.habits.key_seconds
        taken = self.habits.one_only and bool(self.made) and not kept
        makes = answer in ("ok", "lost", "positive", "id") or (answer == "exists" and not self.made)
        if makes and not kept and not taken:
            self.made.append(now + (self.habits.commits_after if answer == "lost" else 0.0))
        match answer:
            case "lost" | "lost-unmade":
                return LOST
            case "positive":
                return YES
            case "id":
                return InDoubt("pms_answer_not_understood", "", made=True, pms_reservation_id="4711", status=201)
            case "exists":
                return InDoubt("pms_has_it", "", made=True, status=409)
            case "down":
                return Deferred("pms_unreachable", "")
            case "no" | "ok" if kept:
                return Confirmed("1")
            case "no":
                return NO
            case _ if taken:
                return IN_WORDS if self.habits.in_words else NO
            case _:
                return Confirmed("1")

    def find(self, now: float) -> bool:
        shown = any(made + self.habits.shows_after <= now for made in self.made)
        return self.habits.shows and shown

    @property
    def holds(self) -> bool:
        return bool(self.made)


@dataclass(frozen=True)
class End:
    status: str
    made: int
    creates: int
    seconds: float
    steps: tuple[str, ...]


def run(pms: ModelPms, facts: Facts, m: ModuleType, *, deadline: float = DAY, steps: int = 30) -> End:
    """What becomes of one submission, as the worker goes about it, by the rules of `m`."""
    known, now, pushed_at, taken = m.NOTHING_SENT, 0.0, 0.0, list[str]()

    def ended(status: str) -> End:
        return End(status, len(pms.made), pms.creates, now, (*taken,))

    for _ in range(steps):
        moment = BEGAN + timedelta(seconds=now)
        next_ = m.next_step(known, facts, moment, now - pushed_at, may_create=now < deadline)
        taken.append(type(next_).__name__)
        match next_:
            case m.SendAgain(seconds) if seconds > 0:
                now += seconds
            case m.Create() | m.SendAgain():
                before = known.settled(at(now)) if isinstance(next_, m.Create) else known
                outcome = pms.create(now)
                now += PUSH if outcome is LOST else 0.1
                known = before.after(outcome, facts.target, at(now))
                pushed_at = now if known.number != before.number else pushed_at
                if isinstance(outcome, Confirmed):
                    return ended("CONFIRMED")
                if isinstance(outcome, Rejected) and (not known.open or not facts.target.reference):
                    return ended("REJECTED")
                now += 2.0
            case m.LookUp(seconds) | m.Park(look=m.LookUp(seconds)):
                now += seconds
                if pms.find(now):
                    return ended("CONFIRMED")
                known = known.absent(at(now), now - pushed_at)
                now += 0.1
            case m.Park():
                return ended("IN_DOUBT")
            case m.Refuse():
                return ended("REJECTED")
            case m.NotMade():
                return ended("FAILED")
    return ended("IN_DOUBT" if taken[-1] == "Park" else "PENDING")


ANSWERS = ("ok", "lost", "lost-unmade", "positive", "id", "exists", "no", "down")
LAGS = ((0.0, 0.0), (60.0, 0.0), (0.0, 45.0), (60.0, 45.0), (170.0, 0.0))
"""Seconds until shown, and until a late commit: together within `settles`, or little more."""


def worlds() -> Iterator[tuple[Facts, Habits]]:
    scripts = [script for length in (1, 2) for script in product(ANSWERS, repeat=length)]
    scripts += [("lost-unmade", *more) for more in product(("ok", "lost", "lost-unmade", "no", "positive"), repeat=2)]
    targets = [Facts(target) for target in (REFERENCE, KEY, BOTH, NEITHER)]
    for facts, script, (shows_after, commits_after), one_only in product(targets, scripts, LAGS, (False, True)):
        yield facts, Habits(script, shows_after, commits_after, one_only=one_only)
    for facts, script in product(targets, scripts):
        if "lost" not in script:  # a booking that is lost, and never shown, cannot be known of
            yield facts, Habits(script, shows=False)
    # A second booking is refused because of ours, which is shown much later than the PMS states.
    yield Facts(REFERENCE), Habits(("lost", "ok"), 200.0, one_only=True)
    yield from (
        (Facts(REFERENCE), Habits(("lost", "ok"), late, one_only=True, in_words=True)) for late in (200.0, 450.0)
    )
    # Keys end.
    yield from (
        (Facts(target, key_seconds=100.0), Habits(("lost",), 150.0, key_seconds=100.0)) for target in (KEY, BOTH)
    )
    # It states that it shows things soon, and commits within the push time-out.
    yield Facts(REFERENCE, settles=5.0, push_seconds=60.0), Habits(("lost", "ok"), commits_after=80.0)
    yield Facts(REFERENCE, settles=0.0, immediate=True), Habits(("lost", "ok"), commits_after=55.0)


def wrongs(m: ModuleType) -> Iterator[str]:
    """Every world in which more than one booking is made, or the ending is not true."""
    for facts, habits in worlds():
        pms = ModelPms(facts.target, habits)
        end = run(pms, facts, m)
        untrue = end.status in ("REJECTED", "FAILED") if pms.made else end.status == "CONFIRMED"
        endless = end.status == "PENDING" and (habits.in_words or habits.answers[-1] == "no")
        without_end = end.creates > original.MAX_CREATES and not facts.target.key and "down" not in habits.answers
        if end.made > 1 or untrue or endless or without_end:
            yield f"{facts.target} {habits}: {end}"


def test_whatever_a_pms_does_one_booking_is_made_and_no_ending_is_wrong() -> None:
    assert sum(1 for _ in worlds()) > 3_000
    found = next(wrongs(original), None)
    assert found is None, found


MUTATIONS = {
    "positive is looked up": ("if positive and can_look:", "if False:"),
    "a 2xx is positive": (
        "case InDoubt(reason) if outcome.made or",
        "case InDoubt(reason) if False and outcome.made or",
    ),
    "first absence after settles": ("if one.after >= settles), None)", "if one.after >= facts.push_seconds), None)"),
    "second absence later": ("second = max(first + settles / 2,", "second = max(first,"),
    "never less than the push time-out": (
        "settles = max(facts.settles, facts.push_seconds)",
        "settles = facts.settles",
    ),
    "not at once after an ambiguous push": (
        "soonest = 0.0 if refused else facts.push_seconds",
        "soonest = 0.0",
    ),
    "no in doubt is no refusal": ("case Rejected(problem) if self.doubted:", "case Rejected(problem) if False:"),
    "nor is one in unknown words": ("case Deferred(reason) if self.doubted and", "case Deferred(reason) if False and"),
    "unknown words are no answer": (" or last.reason in UNSURE_REFUSALS:", ":"),
    "three creates at most": ("if evidence.ambiguous_creates >= MAX_CREATES and not refused:", "if False:"),
    "keys end": ("sent = moment(push.since or push.at) if push.to.key else None", "return push.to.key"),
    "a refusal ends the key's round": ("(refused or evidence.ambiguous_creates", "(evidence.ambiguous_creates"),
    "what cannot be looked up is parked": (
        'return Park("cannot_be_checked", _NO_REFERENCE if facts.target.reference else _NO_SEARCH)',
        "return _nothing_open(evidence, may_create=may_create)",
    ),
}


@pytest.mark.parametrize("rule", some(list(MUTATIONS), 15))
def test_each_rule_taken_back_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = MUTATIONS[rule]
    source = Path(original.__file__).read_text()
    assert source.count(before) == 1, f"{rule}: the source has {source.count(before)} of {before!r}"
    mutant = ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)
    exec(compile(source.replace(before, after), "mutant", "exec"), mutant.__dict__)
    assert next(wrongs(mutant), None) is not None


# --- each rule by itself ---


def unsure(target: Target = REFERENCE, outcome: Outcome = LOST, known: Evidence = NOTHING_SENT) -> Evidence:
    return known.after(outcome, target, at(0.0))


@pytest.mark.parametrize(
    "elsewhere",
    [Target("other", "us", "id", key=True), Target("pms", "another-tenant", "id", key=True), UNKNOWN_TARGET],
)
def test_another_pms_or_credential_is_not_asked(elsewhere: Target) -> None:
    parked = step(unsure(elsewhere), Facts(BOTH))
    assert isinstance(parked, Park)
    assert parked.look is None


def test_what_an_operator_vouches_for_is_the_same_pms() -> None:
    moved = unsure(Target("other", "us", "id"))
    assert isinstance(step(moved, Facts(REFERENCE, same_before=at(1.0)), seconds=30.0), LookUp)
    assert isinstance(step(moved, Facts(REFERENCE, same_before=at(0.0))), Park)


def test_a_push_of_a_worker_that_died_before_an_operator_vouched_is_vouched_for_though_it_was_noticed_later() -> None:
    lost = Push(at(9.0), Target("other", "us", "id"), Came.AMBIGUOUS, "worker_lost", since=at(0.0))
    assert isinstance(step(Evidence((lost,)), Facts(REFERENCE, same_before=at(1.0)), seconds=39.0), LookUp)
    assert isinstance(step(Evidence((lost,)), Facts(REFERENCE, same_before=at(0.0)), seconds=39.0), Park)


def test_a_credential_that_nobody_noted_may_be_any() -> None:
    assert isinstance(step(unsure(Target("pms", "", "id")), Facts(REFERENCE)), LookUp)


def test_looks_come_early_and_then_when_they_count() -> None:
    known, looks, facts = unsure(), list[float](), Facts(REFERENCE)
    for _ in range(4):
        next_ = step(known, facts, seconds=looks[-1] if looks else 0.0)
        assert isinstance(next_, LookUp)
        looks.append(next_.seconds + (looks[-1] if looks else 0.0))
        known = known.absent(at(looks[-1]), looks[-1])
    assert looks == [30.0, 60.0, 120.0, 180.0]
    assert step(known, facts, seconds=180.0) == Create()
    assert step(known, facts, seconds=180.0, may_create=False) == NotMade()


def test_where_a_pms_shows_at_once_what_it_made_one_look_is_enough() -> None:
    facts = Facts(REFERENCE, immediate=True)
    assert step(unsure(), facts) == LookUp(30.0)
    assert step(unsure().absent(at(29.0), 29.0), facts, seconds=30.0) == LookUp(0.0)
    assert step(unsure().absent(at(30.0), 30.0), facts, seconds=30.0) == Create()


def test_a_refusal_counts_once_its_cause_is_surely_not_ours() -> None:
    known = unsure(outcome=NO, known=unsure().absent(at(120.0), 120.0).absent(at(180.0), 180.0).settled(at(180.0)))
    assert isinstance(step(known, Facts(REFERENCE)), LookUp)
    settled = known.absent(at(300.0), 120.0).absent(at(360.0), 180.0)
    assert step(settled, Facts(REFERENCE), seconds=180.0) == Refuse(NO.problem)


def test_a_first_refusal_counts_at_once() -> None:
    assert unsure(outcome=NO) == NOTHING_SENT


def test_refusals_in_unknown_words_are_no_ambiguous_answers() -> None:
    known = unsure()
    for _ in range(3):
        known = unsure(outcome=IN_WORDS, known=known.settled(at(0.0)))
        assert isinstance(step(known, Facts(REFERENCE)), LookUp)
    known = unsure(known=known.settled(at(0.0))).absent(at(120.0), 120.0).absent(at(180.0), 180.0)
    assert step(known, Facts(REFERENCE), seconds=180.0) == Create()


def test_each_row_of_the_table_is_so() -> None:
    absent = unsure().absent(at(120.0), 120.0).absent(at(180.0), 180.0)
    refused = unsure(outcome=NO, known=absent.settled(at(180.0))).absent(at(300.0), 120.0).absent(at(360.0), 180.0)
    three = Evidence(unsure().lines * 3 + absent.lines[1:])
    examples = [
        step(refused, Facts(REFERENCE), seconds=180.0),
        step(NOTHING_SENT, Facts(REFERENCE)),
        step(NOTHING_SENT, Facts(REFERENCE), may_create=False),
        step(unsure(), Facts(Target("other", "us", "id"))),
        step(unsure(outcome=YES), Facts(REFERENCE)),
        step(unsure(KEY, YES), Facts(KEY)),
        step(unsure(NEITHER, YES), Facts(NEITHER)),
        step(unsure(BOTH), Facts(BOTH)),
        step(unsure(NEITHER), Facts(NEITHER)),
        step(unsure(), Facts(REFERENCE)),
        step(three, Facts(REFERENCE), seconds=180.0),
        step(absent, Facts(REFERENCE), seconds=180.0),
    ]
    _, _, *rows = [line for line in (original.__doc__ or "").splitlines() if line.startswith("|")]
    for row, example in zip(rows, examples, strict=True):
        said = row.rpartition(" | ")[2]
        assert f"`{type(example).__name__}`" in said or (example == Create() and "as in the rows for none" in said), row
        assert not isinstance(example, Park) or f"(`{example.reason}`)" in said, row


def test_workers_that_died_are_no_ambiguous_answers_of_the_pms() -> None:
    lost = Push(at(0.0), REFERENCE, Came.AMBIGUOUS, WORKER_LOST)
    known = Evidence((lost,) * 5).absent(at(120.0), 120.0).absent(at(180.0), 180.0)
    assert step(known, Facts(REFERENCE), seconds=180.0) == Create()


def test_a_dead_workers_push_may_have_gone_on_for_the_push_time_out() -> None:
    facts = Facts(REFERENCE, settles=PUSH)
    known = (
        Evidence((Push(at(0.0), REFERENCE, Came.AMBIGUOUS, WORKER_LOST),)).absent(at(30.0), 30.0).absent(at(45.0), 45.0)
    )
    assert step(known, facts, seconds=45.0) == LookUp(15.0)
    assert step(known.absent(at(60.0), 60.0), facts, seconds=60.0) == Create()
    assert step(unsure().absent(at(30.0), 30.0).absent(at(45.0), 45.0), facts, seconds=45.0) == Create()


def test_a_key_counts_from_when_its_first_push_may_have_come() -> None:
    facts, known = Facts(KEY, key_seconds=100.0), NOTHING_SENT.after(LOST, KEY, at(PUSH))  # it may have come at 0
    ends = 100.0 - PUSH
    assert step(known, facts, seconds=ends - 1.0, waited=PUSH) == SendAgain()
    assert isinstance(step(known, facts, seconds=ends, waited=PUSH), Park), "it may come again when it is forgotten"
    assert isinstance(step(known, facts, seconds=PUSH, waited=ends), Park), "a clock was set back"


def test_after_half_an_hour_a_person_is_asked_about_a_positive_answer_that_is_not_shown() -> None:
    positive = unsure(outcome=InDoubt("", "", made=True, pms_reservation_id="4711", status=201))
    assert step(positive, Facts(REFERENCE)) == LookUp(5.0)
    late = positive.absent(at(1800.0), 1800.0)
    parked = step(late, Facts(REFERENCE), seconds=1800.0)
    assert isinstance(parked, Park)
    assert parked.look == LookUp(1800.0)
    assert late.pms_id == "4711"
    assert late.words == [
        "The PMS answered 201 with id 4711 at 2027-01-01T00:00:00.000Z.",
        "It was looked up once since then, last at 2027-01-01T00:30:00.000Z, and was not shown.",
    ]


@for_each("target", [REFERENCE, KEY, BOTH, NEITHER, UNKNOWN_TARGET, Target("a", "b", "30")])
def test_what_is_written_is_read_again(target: Target) -> None:
    known = unsure(target).absent(at(1.0), 1.5).settled(at(2.0))
    known = known.after(NO, target, at(3.0)).found("4711", target, at(4.0))
    assert read_evidence(known.text) == known
    assert known.open == []
    origin = known.origin
    assert (origin and origin.to) == (target if target.pms else None)
    assert read_target(target.text) == (target if target.text else UNKNOWN_TARGET)


@for_each("text", ["{", '{"type":"push"}', '{"type":"other"}', "null", "\x00"])
def test_what_cannot_be_read_is_a_push_of_which_nothing_is_known(text: str) -> None:
    assert isinstance(step(read_evidence(text), Facts(BOTH)), Park)


def test_very_many_look_ups_take_no_more_room() -> None:
    known = unsure()
    for n in range(200):
        known = known.absent(at(n), float(n))
    assert len(known.lines) < 50
    assert "looked up 200 times" in known.words[-1]
