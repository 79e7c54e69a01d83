"""One seed, one history: drawn, lived through, judged, shrunk, and told as a story."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from tests.net.judge import judge
from tests.net.moves import MOVES, Move, some
from tests.net.moves.callers import Submit, read, send
from tests.net.moves.infrastructure import FailOver, RestoreSnapshot
from tests.net.pms import SHAPES
from tests.net.record import short
from tests.net.world import ACCOUNTS, HOSTS, World
from tests.net.worlds.store import Store, opened_store

_PAUSES: Final = (0.0, 0.02, 0.1, 0.5, 1.0, 1.0, 3.0, 3.0, 8.0, 20.0, 40.0, 100.0)
_PAUSED_SECONDS: Final = 200.0
"""A history has no long pauses any more after so much time: quiet costs as much as what happens."""
_AFTERWARDS: Final = 200.0
"""Longer than a lease and a doubt last, and than any worker is stopped."""
_CALLERS: Final = frozenset({"Submit", "SendAgain", "Cancel", "Read"})
_WALKED: Final = 32
"""Pairs of kinds of moves in one history."""


@dataclass(frozen=True, slots=True)
class Step:
    """A move, and how much time goes by after it."""

    move: Move
    pause: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed says: the PMS and the settings of each account, the number of workers, and the steps."""

    seed: int
    shapes: Mapping[str, str]
    settings: Mapping[str, Any]
    workers: int
    steps: Sequence[Step]


@dataclass(slots=True)
class Outcome:
    """How a history went. `wrong`: what the judge says. `story`: line by line. `pairs`: kinds of moves that came one after the
    other."""

    plan: Plan
    wrong: Sequence[str]
    story: Sequence[str]
    pairs: set[tuple[str, str]] = field(default_factory=set)

    def told(self) -> str:
        """As it is printed."""
        plan = self.plan
        head = [
            f"seed {plan.seed}, {plan.workers} workers, {dict(plan.shapes)}, {dict(plan.settings)}",
            *self.wrong,
            "",
        ]
        moves = [f"    {step.move}, then {step.pause} s" for step in plan.steps]
        return "\n".join([*head, *moves, "", *self.story])


def plan_of(
    seed: int,
    focus: Mapping[str, Mapping[str, Sequence[Any]]] = {},
    shape: str = "",
    given: Mapping[str, Any] = {},
    pauses: Sequence[float] = (),
    ordered: bool = False,
) -> Plan:
    """The history of a seed. Even seeds draw from some kinds of moves and some values only, by weights of their own, so that these
    meet each other more often; odd seeds walk through pairs of kinds, so that a hundred and fifty see all pairs.

    `focus`: only these kinds, and submissions, with the values that their fields are drawn from if not from all. All of them
    concern the first account, whose PMS is of this `shape`. `given`: settings of the accounts. `pauses`: what the seconds between
    the moves are drawn from, if not from all. `ordered`: the kinds of `focus` happen once, in this order."""
    rng = random.Random(seed)
    first, second = rng.choice(list(SHAPES)), rng.choice(list(SHAPES))
    shapes = dict(zip(ACCOUNTS, (shape or first, second, "keyed"), strict=True))
    settings = {"concurrency": rng.choice([3, 3, 1]), "deadline_seconds": rng.choice([1800, 1800, 120, 20]), **given}
    if ordered:
        kinds: Sequence[type[Move]] = [each for name in focus for each in MOVES if each.__name__ == name]
    elif focus:
        kinds = [Submit, *_weighed(rng, [*focus, "Submit"], rng.randint(6, 12))]
    elif seed % 2:
        kinds = _walk(rng, seed // 2)
    else:
        others = [each.__name__ for each in MOVES if each.__name__ not in _CALLERS]
        kinds = _weighed(rng, [*_CALLERS, *rng.sample(others, rng.randint(3, 9))], rng.randint(8, 24))
    narrowed = {
        kind: {**kind.narrowed(rng), **focus.get(kind.__name__, {})} for kind in sorted(set(kinds), key=MOVES.index)
    }
    short, long, left = pauses or some(rng, _PAUSES[:5]), pauses or some(rng, _PAUSES), _PAUSED_SECONDS
    steps = list[Step]()
    for kind in kinds:
        move, pause = kind.draw(rng, narrowed[kind]), rng.choice(rng.choice((short, long) if left > 0 else (short,)))
        left -= pause
        steps.append(Step(_about_the_first(move) if focus else move, pause))
    # What is odd in the end goes on for a while, or is well at once.
    steps[-1] = replace(steps[-1], pause=_AFTERWARDS if focus else rng.choice([0.0, 0.0, 0.0, _AFTERWARDS]))
    return Plan(seed, shapes, settings, rng.choice([2, 2, 3] if focus else [2, 2, 1, 3]), steps)


def _weighed(rng: random.Random, names: Sequence[str], count: int) -> Sequence[type[Move]]:
    kinds = [each for each in MOVES if each.__name__ in names]
    return rng.choices(kinds, [rng.choice([1, 2, 4]) for _ in kinds], k=count)


def _walk(rng: random.Random, number: int) -> Sequence[type[Move]]:
    """Part `number` of a walk through all pairs of kinds of moves, with a submission now and then."""
    circuit = _circuit(number * _WALKED // len(MOVES) ** 2)
    start = number * _WALKED % len(circuit)
    walked = [MOVES[place] for place in (circuit * 2)[start : start + _WALKED + 1]]
    for place in (20, 10, 0):
        walked[place:place] = [Submit] * rng.randint(1, 2)
    return walked


@lru_cache(maxsize=4)
def _circuit(number: int) -> list[int]:
    """A way through the complete graph of all kinds that takes each edge once (Hierholzer, 1873)."""
    rng = random.Random(number)
    ahead = [rng.sample(range(len(MOVES)), len(MOVES)) for _ in MOVES]
    way, circuit = [0], list[int]()
    while way:
        if ahead[way[-1]]:
            way.append(ahead[way[-1]].pop())
        else:
            circuit.append(way.pop())
    return circuit[::-1]


def _about_the_first(move: Move) -> Move:
    changes: dict[str, Any] = {"account": next(iter(ACCOUNTS))} if hasattr(move, "account") else {}
    return replace(move, **changes)


def live(url: str, plan: Plan) -> Outcome:
    """The outcome of this history, in the migrated database at `url`."""
    random.seed(plan.seed)  # jitter
    with opened_store(url, HOSTS) as store:  # anew: what an engine holds belongs to one event loop
        return _live(store, plan)


def _live(store: Store, plan: Plan) -> Outcome:
    world = World(store, plan.shapes, plan.settings, workers=plan.workers)
    goes_back = any(isinstance(step.move, FailOver | RestoreSnapshot) for step in plan.steps)
    try:
        for step in plan.steps:
            if goes_back:
                world.take_snapshot()
            step.move.happen(world)
            _pass(world, step.pause, snapshots=goes_back)
        _end_well(world)
    except AssertionError as error:
        world.record.ended.append(f"the simulation: {error}")
    finally:
        world.close()
    names = [type(step.move).__name__ for step in plan.steps]
    strays = [f"sends_what_it_holds: {violation}" for violation in world.log.ownership.violations]
    return Outcome(plan, [*judge(world.record), *strays], world.record.said, set(pairwise(names)))


def _pass(world: World, seconds: float, *, snapshots: bool) -> None:
    while snapshots and seconds > 2.0:
        world.pass_time(2.0)
        world.take_snapshot()
        seconds -= 2.0
    world.pass_time(seconds)


def _end_well(world: World) -> None:
    """Everything is repaired, callers ask again for what they have no answer to, and all is given time; then statuses are read."""
    world.say("everything is well from now on")
    world.record.repaired_at = world.now
    for account, pms in world.pmss.items():
        pms.be_well()
        usual: dict[str, Any] = {
            "paused": False,
            "concurrency": 3,
            "rate_per_second": None,
            "options": SHAPES[pms.shape],
        }
        home = {"base_url": f"https://{account}.pms.test", "credential": f"token-of-{account}"}
        world.change_account(account, **home, **usual, same_pms=account not in world.strayed)
    for process in [*world.processes(), *(door.process for door in world.doors)]:
        process.be_well()
    world.trouble(120.0)
    world.pass_time(20.0)
    for place in range(1, len(world.processes())):  # one is enough from now on, and costs less
        world.stop_worker(place)
    world.pass_time(40.0)
    if not world.processes():
        world.start_worker()
        world.pass_time(30.0)
    _recover_if_asked(world)
    for door in (0, 1, 0, 1):
        again = [each for each in world.record.intents if each.calls and not each.accepted]
        again = [each for each in again if all(_may_be_asked_again(call.status) for call in each.calls)]
        for intent in again:
            send(world, intent, door)
        world.pass_time(30.0 if again else 0.0)
    for turn in range(50):
        world.pass_time(30.0 if turn < 30 else 600.0)
        _recover_if_asked(world)
        if _is_over(world):
            break
    for door in (0, 1):
        _read_all(world, door)
    (gaps,) = world.store.read("SELECT count(*) AS n FROM log_gaps")
    world.record.noticed = gaps[0][0] > 0
    world.record.finished_at = world.now


def _recover_if_asked(world: World) -> None:
    if world.is_behind():
        world.say("operator: forwarder recover, for a worker says that the store lacks something")
        world.recover()


def _may_be_asked_again(status: int | None) -> bool:
    return status is None or status in {429, 503}


def _is_over(world: World) -> bool:
    (rows,) = world.store.read(
        "SELECT count(*) AS n FROM reservations WHERE status = 'PENDING' OR leased_by IS NOT NULL"
    )
    (cancelling,) = world.store.read(
        "SELECT count(*) AS n FROM reservations WHERE status = 'CONFIRMED' "
        "AND cancel_requested_at IS NOT NULL AND cancel_problem IS NULL"
    )
    (waiting,) = world.store.read("SELECT count(*) AS n FROM outbox")
    findable = world.record.lost_sight_of()
    doubts = not world.record.losses and any(each in findable for each in world.in_doubt())
    return world.log.read and not doubts and not rows[0][0] and not cancelling[0][0] and not waiting[0][0]


def _read_all(world: World, door: int) -> None:
    known: dict[str, str] = {}
    for intent in world.record.intents:
        for call in intent.accepted:
            if call.request_id:
                known[call.request_id] = intent.account
    calls = {request_id: read(world, account, request_id, door) for request_id, account in known.items()}
    world.pass_time(2.0)
    for request_id, call in calls.items():
        world.say(f"{short(request_id)} is {call.data.get('status', call.status)} in the end")


def shrink(url: str, outcome: Outcome, tries: int = 120) -> Outcome:
    """A shorter history that breaks one of the same rules."""
    rules = {each.partition(":")[0] for each in outcome.wrong}
    best, size = outcome, max(len(outcome.plan.steps) // 2, 1)
    while tries > 0 and size >= 1:
        shorter = None
        for plan in _without(best.plan, size):
            tries -= 1
            tried = live(url, plan)
            if rules & {each.partition(":")[0] for each in tried.wrong}:
                shorter = tried
                break
            if tries <= 0:
                break
        if shorter is not None:
            best = shorter
            size = min(size, max(len(best.plan.steps) // 2, 1))
        elif size == 1:
            break
        else:
            size //= 2
    return best


def _without(plan: Plan, size: int) -> Iterator[Plan]:
    for start in range(0, len(plan.steps), size):
        steps = [*plan.steps[:start], *plan.steps[start + size :]]
        if steps:
            yield replace(plan, steps=steps)


def pair_coverage(pairs: Counter[tuple[str, str]]) -> float:
    """The share of all pairs of kinds of moves that were seen one after the other."""
    return len(pairs) / len(MOVES) ** 2
