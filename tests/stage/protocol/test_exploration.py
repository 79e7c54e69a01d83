"""Explores every history of a few submissions and faults, over the product's own functions and statements; and finds what is broken
in these."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import null, true

from forwarder.reservation import evidence
from forwarder.reservation.evidence import NOTHING_SENT, Create
from forwarder.reservation.submission import Earlier
from forwarder.store.submissions import cancellations, leases, recorder, rows
from forwarder.store.tables import reservations
from forwarder.worker.lease import Lease, LeaseWatch
from forwarder.worker.outcome import policy
from forwarder.worker.push import run
from forwarder.worker.push.pipeline import Pusher
from forwarder.worker.push.run import PushClock, PushContext
from tests.stage.protocol.exploration.search import PMS, explore
from tests.stage.protocol.exploration.world import FAULTS, Bound

Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.slow  # for a change, one submission with any two faults
def test_three_submissions_two_workers_and_any_fault() -> None:
    explored = explore(Bound(submissions=3, workers=2, faults=1))
    assert not explored.violation, explored
    assert explored.states > 10_000


@pytest.mark.parametrize("pms", PMS)
def test_one_submission_two_workers_and_any_fault(pms: str) -> None:
    explored = explore(Bound(submissions=1, workers=2, faults=1), pms=pms)
    assert not explored.violation, explored
    assert explored.states > 200


@pytest.mark.parametrize("pms", [one if one == "find" else pytest.param(one, marks=pytest.mark.slow) for one in PMS])
def test_one_submission_two_workers_and_any_two_faults(pms: str) -> None:
    explored = explore(Bound(submissions=1, workers=2, faults=2), pms=pms)
    assert not explored.violation, explored
    assert explored.states > 2_000
    assert pms != "find" or explored.faults == frozenset(FAULTS)


# --- broken on purpose ---


def _value(module: Any, name: str, value: Any) -> Patch:
    return lambda patch: patch.setattr(module, name, value)


def _sends_again_blindly(*_arguments: Any, may_create: bool) -> Any:
    return Create() if may_create else evidence.NotMade()


def _creates_what_was_positive(known: evidence.Evidence, *arguments: Any, **named: Any) -> Any:
    positive = any(push.came is evidence.Came.POSITIVE for push in known.open)
    return Create() if positive else evidence.next_step(known, *arguments, **named)


_next_look: Callable[..., float | None] = vars(evidence)["_next_look"]
_seconds = PushClock.seconds


def _only_once(absences: Any, facts: Any, **more: Any) -> float | None:
    return None if absences else _next_look(absences, facts, **more)


def _forgets_that_workers_die(absences: Any, facts: Any, *, refused: bool, **_more: Any) -> float | None:
    return _next_look(absences, facts, refused=refused, lost=False)


def _held_by_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "HELD", true())
    patch.setattr(recorder, "HELD", true())
    patch.setattr(recorder, "postpone", leases.postpone.__wrapped__)
    patch.setattr(recorder, "finish", recorder.finish_where(true(), recorder.outcomes()).returning(reservations.c.id))


def _claims_what_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "_due", reservations.c.due_at <= vars(leases)["_now"])
    patch.setattr(leases, "claim", leases.claim.__wrapped__)


def _takes_over_without_a_trace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leases, "_abandoned", lambda: {"leased_by": null(), "due_at": vars(leases)["_now"]})
    patch.setattr(leases, "free_abandoned", leases.free_abandoned.__wrapped__)


def _notes_no_cancellation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cancellations, "_is_new", lambda revision: revision < 0)
    patch.setattr(cancellations, "note", cancellations.note.__wrapped__)


async def _checks_nothing_more(_self: Pusher, push: Any, _target: Any) -> None:
    push.sent = True


def _gives_up(self: Any, reason: str, detail: str) -> Any:
    return self.give_up(reason, detail)


MUTANTS: dict[str, tuple[tuple[str, ...], str, Patch]] = {
    "a doubt is sent again blindly": (("answer lost",), "find", _value(run, "next_step", _sends_again_blindly)),
    "a positive answer is created again": (
        ("positive without proof",),
        "find",
        _value(run, "next_step", _creates_what_was_positive),
    ),
    "an early absence is believed": (("shown late",), "find", _value(evidence, "_next_look", _only_once)),
    "the push of a dead worker ends with its lease": (
        ("crash", "shown late"),
        "find",
        _value(evidence, "_next_look", _forgets_that_workers_die),
    ),
    "what is in doubt fails": (("answer lost",), "neither", _value(vars(policy)["_Decision"], "park", _gives_up)),
    "no result is in doubt": (
        ("crash", "outage until the deadline"),
        "find",
        _value(PushContext, "possibly_sent", property(lambda _: False)),
    ),
    "the evidence is not read": (("answer lost",), "find", _value(rows, "_evidence_in", lambda _: NOTHING_SENT)),
    "a push goes on after its lease": (
        ("stopped past its lease", "answer lost"),
        "find",
        _value(Lease, "covers", lambda *_: True),
    ),
    "a lease is taken over at once": (("crash",), "find", _value(LeaseWatch, "stopped", lambda _self, beats: beats)),
    "nobody waits for a push to arrive": (
        ("crash",),
        "find",
        _value(PushClock, "seconds", lambda *given: _seconds(*given) + 100.0),
    ),
    "a worker records what it does not hold": (
        ("stopped past its lease", "down", "answer lost"),
        "find",
        _held_by_anybody,
    ),
    "what another worker holds is claimed": ((), "find", _claims_what_is_held),
    "a dead worker's push leaves no evidence": (("crash",), "find", _takes_over_without_a_trace),
    "a cancellation is not noted": (("caller cancels",), "find", _notes_no_cancellation),
    "a cancellation is not looked for before sending": (
        ("caller cancels", "answer lost", "request lost"),
        "find",
        _value(Pusher, "before_sending", _checks_nothing_more),
    ),
    "no repeat is recognised": (
        ("answer to the caller lost",),
        "find",
        _value(Earlier, "is_repeated_by", lambda *_: False),
    ),
    "a repeat of what was refused is swallowed": (
        ("refused", "answer to the caller lost"),
        "find",
        _value(Earlier, "stands", lambda *_: True),
    ),
}


@pytest.mark.parametrize("broken", MUTANTS)
def test_what_is_broken_is_found(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults, pms, patch = MUTANTS[broken]
    patch(monkeypatch)
    bound = Bound(submissions=1, workers=2, faults=len(faults), allowed=frozenset(faults))
    explored = explore(bound, pms=pms, settles=120.0 if "early" in broken else 30.0)
    assert explored.violation
    assert explored.story
