"""Histories in which the net found what nobody had thought of, as short as they could be made."""

from collections.abc import Sequence

import pytest

from tests.net.histories import Plan, Step, live
from tests.net.moves.callers import Cancel, ReuseKey, SendAgain, Submit
from tests.net.moves.infrastructure import ClockJumps, DeliverAgain, FailOver, KillWorker, LogForgets, PutOut, Strike
from tests.net.moves.operators import ChangeAddress, PauseOrResume, Settle
from tests.net.moves.pmss import IsWell, NextReplies
from tests.net.world import ACCOUNTS
from tests.net.worlds.mishap import Effect
from tests.support.profile import some

pytestmark = pytest.mark.usefixtures("no_log_lines")

FOUND: dict[str, Sequence[Step]] = {
    "recovered though its offset was not committed": [
        Step(Submit(account="beta-1"), 10.0),
        Step(Submit(), 1.0),
        Step(FailOver(seconds=2.0), 8.0),
        Step(DeliverAgain(), 30.0),
    ],
    "recovered though its offset was committed late": [
        Step(Submit(account="beta-1"), 10.0),
        *(Step(Strike(place=place, step="log commit", effect=Effect.SLOW, seconds=60.0), 0.0) for place in (0, 1)),
        Step(Submit(), 1.0),
        Step(FailOver(seconds=2.0), 40.0),
    ],
    "pushed again by the worker that got the partitions of one that stopped for a loss": [
        Step(NextReplies(first="says 429", second="makes it and loses the answer", count=2), 3.0),
        Step(Submit(), 40.0),
        Step(FailOver(seconds=30.0), 200.0),
    ],
    "recovered though the clocks of workers were ahead": [
        *(Step(ClockJumps(place=place, seconds=7200.0), 0.0) for place in (0, 1)),
        Step(Submit(account="beta-1"), 10.0),
        Step(Submit(), 1.0),
        Step(FailOver(seconds=2.0), 40.0),
    ],
    "sent by a machine that slept while it connected": [
        *(
            Step(Strike(place=place, step="pms create", effect=Effect.SLEEP_BEFORE, seconds=100.0), 0.0)
            for place in (0, 1)
        ),
        Step(Submit(more=3), 200.0),
    ],
    "ingested as new after a failover that lost the first": [
        Step(Submit(lost=True), 2.0),
        Step(FailOver(seconds=2.0), 0.5),
        Step(SendAgain(times=2), 0.5),
    ],
    "in doubt after a failover that lost its confirmation": [
        Step(Submit(more=7), 1.0),
        Step(IsWell(), 1.0),
        Step(IsWell(), 1.0),
        Step(FailOver(seconds=2.0), 1.0),
    ],
    "put off once more by a worker that lost its partition and got it back": [
        Step(
            NextReplies(first="says 403 for a proxy and has made nothing", second="answers with rubbish", count=2), 1.0
        ),
        Step(Strike(place=1, step="store record", effect=Effect.UNANSWERED, seconds=15.0), 1.0),
        Step(Submit(), 2.0),
        Step(PutOut(), 9.0),
        Step(PutOut(), 60.0),
    ],
    "cancelled at another PMS, after its worker died and an operator confirmed it": [
        Step(NextReplies(first="makes it in the end and never answers"), 0.0),
        Step(Submit(), 5.0),
        *(Step(KillWorker(place=place), 90.0 * place) for place in (0, 1)),
        Step(IsWell(), 90.0),
        Step(Settle(), 10.0),
        Step(ChangeAddress(away=True), 10.0),
        Step(Submit(), 10.0),
        Step(Cancel(nth=1), 20.0),
    ],
    "another body under the key of one with a card, in the same batch": [
        Step(Submit(keyed=True, card=True), 0.0),
        Step(ReuseKey(door=1), 0.0),
    ],
    "pushed before its offset was committed, by workers that died as the store failed over": [
        Step(Submit(account="beta-1"), 10.0),
        *(Step(Strike(place=place, step="log commit", effect=Effect.SLOW, seconds=0.5), 0.0) for place in (0, 1)),
        Step(Submit(more=3), 0.64),
        *(Step(KillWorker(place=place, again=True), 0.0) for place in (0, 1)),
        Step(FailOver(seconds=2.0), 40.0),
    ],
    "written where the log was cut back, before anybody looked": [
        Step(SendAgain(nth=4, times=2), 0.5),
        Step(LogForgets(count=2, election=True, fresh=True), 0.02),
        Step(LogForgets(count=1, election=False, fresh=True), 40.0),
    ],
    "a cancellation that a failover lost, which ended as failed before anybody repeated it": [
        Step(Submit(more=3, wait=20), 0.5),
        Step(PauseOrResume(paused=True), 1.0),
        Step(Cancel(nth=2), 1.0),
        Step(FailOver(seconds=2.0), 100.0),
    ],
}


_KEYED = frozenset(
    {
        "ingested as new after a failover that lost the first",
        "another body under the key of one with a card, in the same batch",
    }
)
"""Those that only a PMS that takes keys, and cards, shows."""
_SHORT = frozenset({"a cancellation that a failover lost, which ended as failed before anybody repeated it"})
"""Those whose deadline comes before the recovery."""


@pytest.mark.parametrize("name", FOUND)
def test_it_is_not_found_again(migrated_sqlite_url: str, name: str) -> None:
    shapes: Sequence[tuple[str, int]] = (("searched", 3), ("immediate", 3), ("neither", 1))
    if name in _KEYED:
        shapes = (("keyed", 3),)
    for shape, concurrency in some(shapes, 3, first=[*FOUND].index(name) % 3):
        settings = {"concurrency": concurrency, "deadline_seconds": 20 if name in _SHORT else 1800}
        outcome = live(migrated_sqlite_url, Plan(1, dict.fromkeys(ACCOUNTS, shape), settings, 2, FOUND[name]))
        assert not outcome.wrong, outcome.told()
