"""One seed, one history: drawn, lived through, judged, shrunk, and told as a story."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from tests.support.machine.worlds.store import Store, opened_store
from tests.support.net.judge import judge
from tests.support.net.moves import MOVES, Move
from tests.support.net.moves.callers import Submit, read, send
from tests.support.net.moves.infrastructure import FailOver, RestoreSnapshot
from tests.support.net.pms import SHAPES
from tests.support.net.record import short
from tests.support.net.world import ACCOUNTS, HOSTS, World

_PAUSES: Final = (0.0, 0.02, 0.1, 0.5, 1.0, 1.0, 3.0, 3.0, 8.0, 20.0, 40.0, 100.0)
_CALLERS: Final = frozenset({"Submit", "SendAgain", "Cancel", "Read"})
_STEPS: Final = 24


@dataclass(frozen=True, slots=True)
class Step:
    """A move, and how much time goes by after it."""

    move: Move
    pause: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed says: the PMS of each account, the number of workers, and the steps."""

    seed: int
    shapes: Mapping[str, str]
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
        head = [f"seed {self.plan.seed}, {self.plan.workers} workers, {dict(self.plan.shapes)}", *self.wrong, ""]
        moves = [f"    {step.move}, then {step.pause} s" for step in self.plan.steps]
        return "\n".join([*head, *moves, "", *self.story])


def plan_of(seed: int, steps: int = _STEPS, focus: Sequence[str] = (), shape: str = "") -> Plan:
    """The history of a seed. Each draws from some kinds of moves only, so that these meet each other more often.

    `focus`: only these kinds, and submissions; all of them concern the first account, whose PMS is of this `shape`."""
    rng = random.Random(seed)
    first, second = rng.choice(list(SHAPES)), rng.choice(list(SHAPES))
    shapes = dict(zip(ACCOUNTS, (shape or first, second, "keyed"), strict=True))
    if focus:
        kinds = [each for each in MOVES if each.__name__ in {*focus, "Submit"}]
        drawn = rng.choices(kinds, [each.weight for each in kinds], k=rng.randint(steps // 4, steps // 2))
        chosen: list[type[Move]] = [Submit, *drawn]
        made = [Step(_about_the_first(kind.draw(rng)), rng.choice(_PAUSES)) for kind in chosen]
        return Plan(seed, shapes, rng.choice([2, 2, 1]), made)
    others = [each for each in MOVES if each.__name__ not in _CALLERS]
    kinds = [each for each in MOVES if each.__name__ in _CALLERS] + rng.sample(others, rng.randint(3, 9))
    weights = [each.weight for each in kinds]
    drawn = rng.choices(kinds, weights, k=rng.randint(steps // 3, steps))
    made = [Step(kind.draw(rng), rng.choice(_PAUSES)) for kind in drawn]
    return Plan(seed, shapes, rng.choice([2, 2, 1, 3]), made)


def _about_the_first(move: Move) -> Move:
    changes: dict[str, Any] = {"account": next(iter(ACCOUNTS))} if hasattr(move, "account") else {}
    return replace(move, **changes)


def live(url: str, plan: Plan) -> Outcome:
    """The outcome of this history, in the migrated database at `url`."""
    random.seed(plan.seed)  # jitter
    with opened_store(url, HOSTS) as store:  # anew: what an engine holds belongs to one event loop
        return _live(store, plan)


def _live(store: Store, plan: Plan) -> Outcome:
    world = World(store, plan.shapes, workers=plan.workers)
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
    return Outcome(plan, judge(world.record), world.record.said, set(pairwise(names)))


def _pass(world: World, seconds: float, *, snapshots: bool) -> None:
    while snapshots and seconds > 2.0:
        world.pass_time(2.0)
        world.take_snapshot()
        seconds -= 2.0
    world.pass_time(seconds)


def _end_well(world: World) -> None:
    """Everything is repaired, callers ask again for what they have no answer to, and all is given time; then statuses are read."""
    world.say("everything is well from now on")
    for account, pms in world.pmss.items():
        pms.be_well()
        world.accounts.change(account, paused=False, base_url=f"https://{account}.pms.test")
    for process in [*world.processes(), *(door.process for door in world.doors)]:
        process.be_well()
    world.trouble(120.0)
    world.pass_time(60.0)
    if world.record.losses and world.record.losses[-1][1] == float("inf"):
        world.say("operator: forwarder recover")
        world.recover()
    if not world.processes():
        world.start_worker()
    for door in (0, 1, 0, 1):
        again = [each for each in world.record.intents if each.calls and not each.accepted]
        again = [each for each in again if all(_may_be_asked_again(call.status) for call in each.calls)]
        for intent in again:
            send(world, intent, door)
        world.pass_time(30.0 if again else 0.0)
    for turn in range(50):
        world.pass_time(30.0 if turn < 30 else 600.0)
        if _is_over(world):
            break
    for door in (0, 1):
        _read_all(world, door)
    (gaps,) = world.store.read("SELECT count(*) AS n FROM log_gaps")
    world.record.noticed = gaps[0][0] > 0
    world.record.finished_at = world.now


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
    return world.log.read and not rows[0][0] and not cancelling[0][0] and not waiting[0][0]


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
            yield Plan(plan.seed, plan.shapes, plan.workers, steps)


def pair_coverage(pairs: Counter[tuple[str, str]]) -> float:
    """The share of all pairs of kinds of moves that were seen one after the other."""
    return len(pairs) / len(MOVES) ** 2
