"""The guarantees as invariants of a state machine: real workers on the real store, and every mishap at every step of theirs."""

import os
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.machine.callers import Order
from tests.support.machine.judge import Judge
from tests.support.machine.mishap import Effect, Mishap, Seam
from tests.support.machine.pms import KINDS, PUSH_SECONDS, LookReply, Reply, Says
from tests.support.machine.site import HOSTS, OPERATOR, Meanwhile, Site
from tests.support.machine.store import Store, opened_store

PROFILE: Final = os.environ.get("FORWARDER_TEST_PROFILE", "ci")
"""`ci`, the same lives each time; or `long`, others each time."""

EXAMPLES: Final = {"ci": {"sqlite": 60, "postgresql": 12}, "long": {"sqlite": 2000, "postgresql": 300}}
STEPS: Final = {"ci": 30, "long": 50}

places = st.integers(0, HOSTS - 1)
kinds = st.sampled_from(sorted(KINDS))
delays = st.sampled_from([0.0, 1.0, 10.0, 20.0, 29.0])
whiles = st.sampled_from([10.0, 50.0, 100.0])
jumps = st.sampled_from([3600.0, -3600.0, 40.0, -40.0])

answered = st.builds(Reply, st.just(Says.YES), delays)
answered_late = st.builds(Reply, st.just(Says.YES), st.just(PUSH_SECONDS), delays)
unanswered = st.builds(Reply, st.just(Says.NOTHING), st.sampled_from([0.0, 10.0, PUSH_SECONDS]), delays | st.none())
refused = st.builds(Reply, st.sampled_from([Says.NO, Says.DOWN, Says.BUSY]), delays, st.none())
orders = st.builds(
    Order,
    room=st.integers(1, 3),
    card=st.booleans(),
    deadline_seconds=st.sampled_from([None, 60, 300]),
    copies=st.sampled_from([1, 1, 2]),
    cancelled=st.sampled_from([False, False, False, True]),
)
steps = st.sampled_from(
    [
        ("store", None),
        ("store", "take_in"),
        ("store", "claim"),
        ("store", "record"),
        ("store", "release"),
        ("store", "mark_pushing"),
        ("store", "published"),
        ("store", "renew"),
        ("log", "publish"),
        ("log", "commit"),
        ("pms", None),
    ]
)
lasting = st.sampled_from([0.0, 5.0, 20.0, 60.0])


def _mishap(step: tuple[Seam, str | None], nth: int, effect: Effect, seconds: float, jump: float) -> Mishap:
    return Mishap(step[0], nth, effect, jump if effect is Effect.CLOCK_JUMPS else seconds, step[1])


mishaps = st.builds(_mishap, steps, st.integers(1, 3), st.sampled_from(Effect), lasting, jumps)
meanwhiles = st.builds(
    Meanwhile,
    kind=kinds,
    orders=st.lists(orders, max_size=3),
    replies=st.lists(answered | answered_late | unanswered | refused, max_size=3),
    look_replies=st.lists(st.builds(LookReply, st.booleans(), delays), max_size=2),
    place=places,
    mishaps=st.lists(mishaps, max_size=2),
    seconds=st.sampled_from([0.0, 1.0, 5.0, 15.0, 35.0, 50.0, 100.0]),
)


class Guarantees(RuleBasedStateMachine):
    """One site's life: after each event, what goes on meanwhile."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.site = Site(store)
        self.judge = Judge(self.site)
        self.broken = False

    @initialize(count=st.integers(1, HOSTS), meanwhile=meanwhiles)
    def workers_start(self, count: int, meanwhile: Meanwhile) -> None:
        for _ in range(count):
            self.site.start_one()
        self.site.go_on(meanwhile)

    @rule(meanwhile=meanwhiles)
    def nothing_happens(self, meanwhile: Meanwhile) -> None:
        self.site.go_on(meanwhile)

    @rule(meanwhile=meanwhiles)
    def worker_starts(self, meanwhile: Meanwhile) -> None:
        self.site.start_one()
        self.site.go_on(meanwhile)

    @rule(place=places, again=st.booleans(), meanwhile=meanwhiles)
    def worker_is_killed(self, place: int, again: bool, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.crash()
        if again:
            self.site.start_one()
        self.site.go_on(meanwhile)

    @rule(place=places, meanwhile=meanwhiles)
    def worker_is_told_to_stop(self, place: int, meanwhile: Meanwhile) -> None:
        self.site.tell_to_stop(place)
        self.site.go_on(meanwhile)

    @rule(place=places, seconds=whiles, meanwhile=meanwhiles)
    def worker_is_stopped_for_a_while(self, place: int, seconds: float, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.stop_for(seconds)
        self.site.go_on(meanwhile)

    @rule(place=places, seam=st.sampled_from(["store", "log"]), seconds=whiles, meanwhile=meanwhiles)
    def worker_is_cut_off(self, place: int, seam: Any, seconds: float, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.cut(seam, seconds)
        self.site.go_on(meanwhile)

    @rule(place=places, seconds=jumps, meanwhile=meanwhiles)
    def wall_clock_jumps(self, place: int, seconds: float, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.clock.jump(seconds)
        self.site.go_on(meanwhile)

    @rule(place=places, meanwhile=meanwhiles)
    def group_puts_a_member_out(self, place: int, meanwhile: Meanwhile) -> None:
        for member in self.site.log.members[place : place + 1]:
            self.site.log.put_out(member)
        self.site.go_on(meanwhile)

    @rule(garbage=st.booleans(), meanwhile=meanwhiles)
    def everything_is_delivered_again(self, garbage: bool, meanwhile: Meanwhile) -> None:
        if garbage:
            self.site.callers.submit_garbage()
        self.site.log.rewind()
        self.site.go_on(meanwhile)

    @rule(number=st.integers(0, 20), meanwhile=meanwhiles)
    def caller_cancels(self, number: int, meanwhile: Meanwhile) -> None:
        (rows,) = self.site.store.read("SELECT request_id, revision FROM reservations ORDER BY id DESC")
        for row in rows[number : number + 1]:
            self.site.callers.cancel(row.request_id, revision=row.revision)
        self.site.go_on(meanwhile)

    @rule(kind=kinds, paused=st.booleans(), meanwhile=meanwhiles)
    def account_is_paused_or_resumed(self, kind: str, paused: bool, meanwhile: Meanwhile) -> None:
        self.site.accounts.pause(kind, paused=paused)
        self.site.go_on(meanwhile)

    @rule(kind=kinds, seconds=st.sampled_from([50.0, 200.0, 700.0]), meanwhile=meanwhiles)
    def pms_is_down(self, kind: str, seconds: float, meanwhile: Meanwhile) -> None:
        self.site.pmss.be_down(kind, seconds)
        self.site.go_on(meanwhile)

    @rule(for_good=st.booleans(), meanwhile=meanwhiles)
    def operator_settles_what_is_in_doubt(self, for_good: bool, meanwhile: Meanwhile) -> None:
        self.site.operator.settle(for_good=for_good)
        self.site.go_on(meanwhile)

    @rule(first=st.integers(0, 3), last=st.integers(0, 9), meanwhile=meanwhiles)
    def operator_replays_dead_letters(self, first: int, last: int, meanwhile: Meanwhile) -> None:
        for event_id, letter in self.site.operator.letters()[first : last + 1]:
            self.site.operator.replay(event_id, letter)
        self.site.go_on(meanwhile)

    @invariant()
    def guarantees_hold(self) -> None:
        try:
            self.judge.check()
        except BaseException:
            self.broken = True
            raise

    def teardown(self) -> None:
        try:
            if not self.broken:
                _all_gets_well(self.site, self.judge)
                self.judge.check_end()
        finally:
            self.site.close()


def _all_gets_well(site: Site, judge: Judge) -> None:
    """No more mishaps. Workers that live go on as they are, with all that they may have forgotten."""
    site.pmss.be_well()
    for account_id in KINDS:
        site.accounts.pause(account_id, paused=False)
    for process in site.processes():
        process.be_well()
    site.pass_time(60.0)
    if not any(site.workers):
        site.start_one()
    for _ in range(60):
        site.pass_time(60.0)
        judge.check()
        if judge.at_rest():
            return
        for clock in site.clocks:  # as if so much more time had gone by
            clock.ahead_seconds += 600.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


def _drop(_logger: object, _method: str, _event: Any) -> Any:
    raise structlog.DropEvent


@pytest.fixture
def store(migrated_url: str) -> Iterator[Store]:
    with opened_store(migrated_url, OPERATOR + 1) as opened:
        yield opened


@pytest.mark.timeout(7200 if PROFILE == "long" else 300)
def test_the_guarantees_hold_whatever_happens(store: Store) -> None:
    profile = settings(
        max_examples=EXAMPLES[PROFILE][store.dialect],
        stateful_step_count=STEPS[PROFILE],
        derandomize=PROFILE == "ci",
        deadline=None,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    def life() -> Guarantees:
        return Guarantees(store)

    run_state_machine_as_test(cast("Any", life), settings=profile)
