"""The state machine: whatever can happen to a site, in any order, and what holds all the same."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from forwarder.worker.parts import WorkerSettings
from tests.support.machine.draws import (
    accounts,
    jumps,
    kinds,
    meanwhiles,
    options,
    places,
    settings,
    whiles,
)
from tests.support.machine.judge import Judge
from tests.support.machine.repetitions import Repetitions
from tests.support.machine.site import Meanwhile, Site
from tests.support.machine.worlds.mishap import Seam
from tests.support.machine.worlds.pms import KINDS
from tests.support.machine.worlds.store import Store


class Life(Repetitions):
    """Of one site: after each event, what goes on meanwhile; and the guarantees, after each."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.site = Site(store)
        self.judge = Judge(self.site)
        self.broken = False
        self.kinds: list[str] = []

    def go_on(self, meanwhile: Meanwhile) -> None:
        self.site.go_on(self.kinds[meanwhile.account], meanwhile)

    @initialize(
        kind=kinds,
        other=kinds,
        count=st.sampled_from([2, 2, 3, 1]),
        settings=settings,
        meanwhile=meanwhiles,
    )
    def workers_start(self, kind: str, other: str, count: int, settings: WorkerSettings, meanwhile: Meanwhile) -> None:
        self.site.settings = settings
        # One or two accounts in a life: so more befalls the same submissions.
        self.kinds = [kind, kind, other]
        for _ in range(count):
            self.site.start_one()
        self.go_on(meanwhile)

    @rule(meanwhile=meanwhiles)
    def nothing_happens(self, meanwhile: Meanwhile) -> None:
        self.go_on(meanwhile)

    @rule(meanwhile=meanwhiles)
    def worker_starts(self, meanwhile: Meanwhile) -> None:
        self.site.start_one()
        self.go_on(meanwhile)

    @rule(place=places, again=st.booleans(), meanwhile=meanwhiles)
    def worker_is_killed(self, place: int, again: bool, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.crash()
        if again:
            self.site.start_one()
        self.go_on(meanwhile)

    @rule(place=places, meanwhile=meanwhiles)
    def worker_is_told_to_stop(self, place: int, meanwhile: Meanwhile) -> None:
        self.site.tell_to_stop(place)
        self.go_on(meanwhile)

    @rule(place=places, seconds=whiles, meanwhile=meanwhiles)
    def worker_is_stopped_for_a_while(self, place: int, seconds: float, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.stop_for(seconds)
        self.go_on(meanwhile)

    @rule(place=places, seam=st.sampled_from(["store", "log"]), seconds=whiles, meanwhile=meanwhiles)
    def worker_is_cut_off(self, place: int, seam: Seam, seconds: float, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.cut(seam, seconds)
        self.go_on(meanwhile)

    @rule(place=places, seconds=jumps, meanwhile=meanwhiles)
    def wall_clock_jumps(self, place: int, seconds: float, meanwhile: Meanwhile) -> None:
        for process in self.site.at(place):
            process.clock.jump(seconds)
        self.go_on(meanwhile)

    @rule(place=places, meanwhile=meanwhiles)
    def group_puts_a_member_out(self, place: int, meanwhile: Meanwhile) -> None:
        self.site.put_out(place)
        self.go_on(meanwhile)

    @rule(garbage=st.booleans(), meanwhile=meanwhiles)
    def everything_is_delivered_again(self, garbage: bool, meanwhile: Meanwhile) -> None:
        if garbage:
            self.site.callers.submit_garbage()
        self.site.log.rewind()
        self.go_on(meanwhile)

    @rule(number=st.integers(0, 20), meanwhile=meanwhiles)
    def caller_cancels(self, number: int, meanwhile: Meanwhile) -> None:
        (rows,) = self.site.store.read("SELECT request_id, revision FROM reservations ORDER BY id DESC")
        for row in rows[number : number + 1]:
            self.site.callers.cancel(row.request_id, revision=row.revision)
        self.go_on(meanwhile)

    @rule(
        number=st.integers(0, 20),
        keyed=st.sampled_from([False, False, False, True]),
        copies=st.sampled_from([1, 2]),
        redelivered=st.booleans(),
        meanwhile=meanwhiles,
    )
    def caller_sends_it_again(
        self, number: int, keyed: bool, copies: int, redelivered: bool, meanwhile: Meanwhile
    ) -> None:
        """Whatever has become of the first by now; who sends a repetition again sends the same."""
        if redelivered:
            self.site.log.rewind()
        for request_id in list(self.site.callers.submitted)[::-1][number : number + 1]:
            self.site.callers.submit_again(request_id, keyed=keyed, copies=copies)
        self.go_on(meanwhile)

    @rule(account=accounts, paused=st.booleans(), meanwhile=meanwhiles)
    def account_is_paused_or_resumed(self, account: int, paused: bool, meanwhile: Meanwhile) -> None:
        self.site.accounts.pause(self.kinds[account], paused=paused)
        self.go_on(meanwhile)

    @rule(account=accounts, options=options, meanwhile=meanwhiles)
    def account_gets_other_options(self, account: int, options: dict[str, bool], meanwhile: Meanwhile) -> None:
        self.site.accounts.set_options(self.kinds[account], options)
        self.go_on(meanwhile)

    @rule(account=accounts, meanwhile=meanwhiles)
    def rules_become_stricter(self, account: int, meanwhile: Meanwhile) -> None:
        self.site.accounts.apply_stricter_rules(self.kinds[account])
        self.go_on(meanwhile)

    @rule(account=accounts, seconds=st.sampled_from([50.0, 200.0, 700.0]), meanwhile=meanwhiles)
    def pms_is_down(self, account: int, seconds: float, meanwhile: Meanwhile) -> None:
        self.site.pmss.be_down(self.kinds[account], seconds)
        self.go_on(meanwhile)

    @rule(for_good=st.booleans(), meanwhile=meanwhiles)
    def operator_settles_what_is_in_doubt(self, for_good: bool, meanwhile: Meanwhile) -> None:
        self.site.operator.settle(for_good=for_good)
        self.go_on(meanwhile)

    @rule(first=st.integers(0, 3), last=st.integers(0, 9), meanwhile=meanwhiles)
    def operator_replays_dead_letters(self, first: int, last: int, meanwhile: Meanwhile) -> None:
        for event_id, letter in self.site.operator.letters()[first : last + 1]:
            self.site.operator.replay(event_id, letter)
        self.go_on(meanwhile)

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
