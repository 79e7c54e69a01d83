"""Histories that chance alone would seldom find: each has a push, or a claim, under way when the worst happens to it."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import pytest

from tests.net.histories import Plan, Step, live
from tests.net.moves import Move
from tests.net.moves.callers import Cancel, SendAgain, Submit
from tests.net.moves.infrastructure import (
    ClockJumps,
    DeliverAgain,
    KillWorker,
    PutOut,
    StartWorker,
    StopWorker,
    Strike,
    SuspendWorker,
)
from tests.net.moves.operators import ChangeOptions, PauseOrResume, ReplayDeadLetters
from tests.net.moves.pmss import Down, NextReplies
from tests.net.world import ACCOUNTS
from tests.net.worlds.mishap import Effect
from tests.support.backends import BACKENDS
from tests.support.profile import some

pytestmark = pytest.mark.usefixtures("no_log_lines")

_SLOW: Final = NextReplies(first="answers slowly", second="answers slowly", count=2)
_MADE_AND_LOST: Final = NextReplies(first="makes it in the end and never answers")
_MADE_NOTHING: Final = NextReplies(first="hangs and makes nothing")
_PLACES: Final = (0, 1)


def _both(step: str, effect: Effect, *, nth: int = 1, seconds: float = 0.0) -> Sequence[Step]:
    return [Step(Strike(place=place, step=step, nth=nth, effect=effect, seconds=seconds), 0.0) for place in _PLACES]


def _put_due(*meanwhile: Step) -> Sequence[Step]:
    """A submission that is taken in, and held by nobody until its account is resumed."""
    return [
        Step(PauseOrResume(paused=True), 1.0),
        Step(Submit(), 5.0),
        *meanwhile,
        Step(PauseOrResume(paused=False), 9.0),
    ]


def _killed() -> Sequence[Step]:
    return [Step(KillWorker(place=place), 0.0) for place in _PLACES]


def _during_a_slow_push(happens: Move, jump: float) -> Sequence[Step]:
    return [
        Step(_SLOW, 0.0),
        Step(Submit(more=1), 3.0),
        Step(happens, 0.0),
        Step(ClockJumps(place=1, seconds=jump), 28.0),
    ]


def _late_in_a_lease(share: float) -> Sequence[Step]:
    """Workers die over a push, without a renewal for that share of their lease."""
    refused = [step for nth in (1, 2, 3) for step in _both("store renew", Effect.REFUSED, nth=nth)]
    refused[-1] = Step(refused[-1].move, 45.0 * share)
    return [*refused, Step(_MADE_AND_LOST, 0.0), Step(Submit(more=1), 3.0), Step(KillWorker(), 60.0)]


def _options_change(known: bool, blind: bool) -> Sequence[Step]:
    """After a push without an answer, of which its worker knows, or dies before."""
    return [
        Step(ChangeOptions(blind=blind), 10.0),
        Step(_MADE_AND_LOST, 0.0),
        Step(Submit(), 5.0),
        *([] if known else _killed()),
        Step(ChangeOptions(blind=not blind), 95.0),
    ]


def _options_change_while_it_waits(blind: bool) -> Sequence[Step]:
    replies = NextReplies(first="answers slowly", second="makes it in the end and never answers", count=2)
    return [
        Step(ChangeOptions(blind=blind), 10.0),
        Step(replies, 0.0),
        Step(Submit(more=1), 3.0),
        Step(ChangeOptions(blind=not blind), 25.0),
        *_killed(),
        Step(ChangeOptions(blind=blind), 95.0),
    ]


def _sent_again(first: NextReplies, keyed: bool, redelivered: bool) -> Sequence[Step]:
    return [
        Step(first, 0.0),
        Step(Submit(keyed=keyed, transaction=not keyed), 3.0),
        Step(SendAgain(door=1, times=2), 40.0),
        *([Step(DeliverAgain(), 0.0)] if redelivered else []),
        Step(SendAgain(), 40.0),
    ]


OPENINGS: Final[Mapping[str, Sequence[Sequence[Step]]]] = {
    "something happens during a slow push": [
        _during_a_slow_push(happens, jump)
        for happens, jump in product((KillWorker(), StopWorker(), PutOut(), KillWorker(again=False)), (100.0, -100.0))
    ],
    "workers die late in their lease": [_late_in_a_lease(share) for share in (0.0, 0.3, 0.5, 0.7)],
    "options change after a push without an answer": [
        _options_change(*case) for case in product((False, True), (False, True))
    ],
    "options change while a push waits": [_options_change_while_it_waits(blind) for blind in (False, True)],
    "clocks are set back before a look": [
        [
            Step(_MADE_NOTHING, 0.0),
            Step(Submit(), seconds),
            *(Step(ClockJumps(place, -3600.0), 0.0) for place in _PLACES),
        ]
        for seconds in (32.0, 62.0, 66.0)
    ],
    "a worker is left without partitions": [
        [
            Step(StartWorker(), 5.0),
            Step(_SLOW, 0.0),
            Step(Submit(more=2), 3.0),
            Step(PutOut(place), 3.0),
            Step(then, 30.0),
        ]
        for place, then in product(_PLACES, (Cancel(), PutOut()))
    ],
    "an intent is answered late and its partition goes": [
        [
            *_both("store mark_pushing", Effect.LATE, seconds=40.0),
            Step(Submit(more=1), 1.0),
            Step(PutOut(), 5.0),
            Step(Cancel(), 45.0),
        ]
    ],
    "a claim is answered late": [
        [*_put_due(*_both("store claim", Effect.LATE, seconds=10.0)), Step(then, 30.0)]
        for then in (Cancel(), PutOut(), PutOut(1), KillWorker())
    ],
    "a connection dies under a claim": [
        [
            *_put_due(
                Step(_MADE_AND_LOST, 0.0),
                *_both("store ingest", Effect.LONG_CONNECTING, seconds=seconds),
                *_both("store claim", effect),
                *_both("store claim", Effect.REFUSED, nth=2),
            ),
            Step(Submit(), 45.0),
        ]
        for effect, seconds in product((Effect.ROLLED_BACK, Effect.UNANSWERED), (5.0, 20.0))
    ],
    "a worker is stopped with a queue": [
        [
            Step(_SLOW, 0.0),
            Step(Submit(more=3), 3.0),
            Step(SuspendWorker(0, seconds), 0.0),
            Step(ClockJumps(0, jump), 110.0),
        ]
        for seconds, jump in product((50.0, 100.0), (100.0, -3600.0))
    ],
    "what failed is put back, fails again and is delivered again": [
        [
            Step(Down(seconds=400.0), 0.0),
            Step(Submit(), 70.0),
            Step(ReplayDeadLetters(), 70.0),
            Step(DeliverAgain(), 20.0),
        ]
    ],
    "it is sent again": [
        _sent_again(*case) for case in product((_MADE_AND_LOST, _MADE_NOTHING, _SLOW), (False, True), (False, True))
    ],
}


_OF_STATEMENTS: Final = {
    "workers die late in their lease",
    "a claim is answered late",
    "a connection dies under a claim",
}
"""What comes of these hangs on what the database does: for a change they are lived through on both."""


@pytest.mark.parametrize(
    ("backend", "opening"),
    [
        pytest.param(
            backend,
            opening,
            marks=[] if backend == "embedded" or opening in _OF_STATEMENTS else pytest.mark.slow,
            id=f"{backend}-{opening}",
        )
        for backend, opening in product(BACKENDS, OPENINGS)
    ],
    indirect=["backend"],
)
def test_the_guarantees_hold_in(opening: str, migrated_url: str) -> None:
    shapes = ("searched", "neither", "key-only", "immediate")
    cases: Sequence[tuple[str, Sequence[Step]]] = list(product(shapes, OPENINGS[opening]))
    for shape, steps in some(cases, 16, first=len(opening) % len(shapes)):
        settings: Mapping[str, Any] = {"concurrency": 3, "deadline_seconds": 60}
        outcome = live(migrated_url, Plan(1, dict.fromkeys(ACCOUNTS, shape), settings, 2, steps))
        assert not outcome.wrong, outcome.told()
