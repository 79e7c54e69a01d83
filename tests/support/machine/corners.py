"""Each opening alone, in a short life of its own, at corners where it once showed something."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, product
from typing import Any, Final

from tests.support.machine import extremes
from tests.support.machine.life import Life
from tests.support.machine.openings import Late
from tests.support.machine.repetitions import Before
from tests.support.machine.site import Meanwhile
from tests.support.machine.worlds.mishap import Effect
from tests.support.machine.worlds.pms import Reply, Says
from tests.support.machine.worlds.store import Store

_NOTHING: Final = Meanwhile(0, [], [], [], 0, [], 0.0)
_NO_LOOK_UP: Final = {"find_by_reference": False}
_NO_KEY: Final = {"idempotent_create": False}
_A_KEY: Final = {"idempotent_create": True}


_OF: Final = {Before.IN_DOUBT: "neither"}
"""Otherwise it is looked for soon."""
_LEASES: Final = sorted({extremes.leases()[0], extremes.leases()[-1]})


def _changes() -> Iterator[Mapping[str, Any]]:
    """Of options: what told of an earlier push is taken away, or what the earlier push did not have is added."""
    pairs = [
        ("searched", {}, _NO_LOOK_UP),
        ("searched", {}, _A_KEY),
        ("key-only", {}, _NO_KEY),
        ("key-only", _NO_KEY, {}),
        ("neither", {}, _A_KEY),
    ]
    for (kind, before, after), known in product(pairs, (True, False)):
        yield {"kind": kind, "before": before, "after": after, "known": known, "made_after": 20.0}


CORNERS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "worker_dies_late_in_its_lease": [
        {"lease": lease, "kind": kind, "share": share, "made_after": 28.0, "again": True}
        for lease, kind, share in product(_LEASES, ("searched", "calendar"), (0.3, 0.5))
    ],
    "options_change_after_a_push_without_an_answer": list(_changes()),
    "worker_is_left_without_partitions": [
        {"kind": kind, "place": place, "cancelled": cancelled}
        for kind, place, cancelled in product(("searched",), (0, 1), (True, False))
    ],
    "connection_dies_under_a_claim": [
        {"kind": "searched", "effect": effect, "connecting": connecting, "reply": reply}
        for effect, connecting, reply in product(
            (Effect.ROLLED_BACK, Effect.UNANSWERED),
            (5.0, 20.0),
            (Reply(Says.YES, 20.0), Reply(Says.NOTHING, 10.0, 10.0)),
        )
    ],
    "claim_is_answered_late": [
        {"kind": kind, "late": late, "place": 0} for kind, late in product(("searched", "calendar"), Late)
    ],
    "options_change_while_a_push_waits": [
        {"kind": "keyed", "before": {}, "meanwhile": _NO_KEY, "made_after": 10.0},
        {"kind": "key-only", "before": {}, "meanwhile": _NO_KEY, "made_after": 10.0},
        {"kind": "neither", "before": _A_KEY, "meanwhile": {}, "made_after": 10.0},
    ],
    "rules_become_stricter_after_a_push_without_an_answer": [
        {"kind": kind, "made_after": 20.0, "known": known}
        for kind, known in product(("searched", "key-only", "neither"), (True, False))
    ],
    "submission_is_sent_again": [
        {
            "kind": _OF.get(before, "searched"),
            "before": before,
            "keyed": keyed,
            "transaction": transaction,
            "redelivered": not keyed,
        }
        for before, (keyed, transaction) in zip(
            (*Before, *reversed(Before)), cycle(((False, False), (True, False), (False, True))), strict=False
        )
    ],
    "clock_is_set_back_during_a_look": [
        {"kind": kind, "jump": -3600.0, "during": during}
        for kind, during in product(("searched", "keyed"), (True, False))
    ],
}


def live_through(store: Store, opening: str, corner: Mapping[str, Any]) -> None:
    """Raises `AssertionError` where a guarantee does not hold in it, or not everything comes to its end afterwards."""
    how = dict(corner)
    lease_seconds, kind = how.pop("lease", extremes.leases()[-1]), how["kind"]
    settings = extremes.worker_settings(lease_seconds=lease_seconds, grace_seconds=20.0, max_held=6, sweep_seconds=7.0)
    random.seed(opening)  # jitter
    life = Life(store)
    try:
        life.workers_start(kind=kind, other=kind, count=2, settings=settings, meanwhile=_NOTHING)
        life.site.pass_time(20.0)
        getattr(life, opening)(**how)
        life.guarantees_hold()
    finally:
        life.teardown()
