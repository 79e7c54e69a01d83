"""Sequences of events that chance alone would seldom find, each with a push under way when the worst happens to it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.machine import draws
from tests.support.machine.accounts import ACCOUNT_DEADLINE_SECONDS
from tests.support.machine.callers import Order
from tests.support.machine.judge import Judge
from tests.support.machine.site import HOSTS, Site
from tests.support.machine.worlds.mishap import Effect, Mishap
from tests.support.machine.worlds.pms import PUSH_SECONDS, LookReply, Reply, Says
from tests.support.machine.worlds.process import Process

ORDER = Order(room=1, card=False, deadline_seconds=None, copies=1)
_OTHER_ORDER = replace(ORDER, room=2)
_MANY = 200


class End(Enum):
    """What becomes of a worker in the middle of its work."""

    TOLD_TO_STOP = "told to stop"
    KILLED = "killed"
    PUT_OUT = "put out of its group"


class Late(Enum):
    """What happens while a claim's answer is on its way."""

    CANCELLED = "what was claimed is cancelled"
    PUT_OUT = "a worker is put out of its group"
    LEFT_WITHOUT = "the worker is put out of its group, and comes back as one more than there are partitions"


class Openings(RuleBasedStateMachine):
    """Of one site. Most concern one of the accounts that a life is about: these `kinds`."""

    site: Site
    judge: Judge
    kinds: Sequence[str]
    broken: bool

    @rule(
        account=draws.accounts,
        order=draws.orders,
        replies=st.lists(draws.slow_replies, min_size=2, max_size=2),
        after=st.sampled_from([1.0, 3.0, 5.0]),
        place=draws.places,
        end=st.sampled_from(list(End)),
        other=draws.places,
        jump=st.sampled_from([0.0, 100.0, 100.0, -100.0]),
        seconds=st.sampled_from([10.0, 28.0, 28.0]),
    )
    def something_happens_during_a_slow_push(
        self,
        account: int,
        order: Order,
        replies: list[Reply],
        after: float,
        place: int,
        end: End,
        other: int,
        jump: float,
        seconds: float,
    ) -> None:
        self._submit(self.kinds[account], replace(order, room=1), replace(order, room=2), replies=replies)
        self.site.pass_time(after)
        match end:
            case End.TOLD_TO_STOP:
                self.site.tell_to_stop(place)
            case End.KILLED:
                for process in self.site.at(place):
                    process.crash()
            case End.PUT_OUT:
                self.site.put_out(place)
        for process in self.site.at(other):
            process.clock.jump(jump)
        self.site.pass_time(seconds)

    @rule(
        kind=draws.kinds_without_a_key,
        share=st.sampled_from([0.0, 0.3, 0.5, 0.7]),
        made_after=st.sampled_from([20.0, 28.0, None]),
        again=st.booleans(),
    )
    def worker_dies_late_in_its_lease(self, kind: str, share: float, made_after: float | None, again: bool) -> None:
        """With a push under way, and without a renewal for at least that share of it, which nobody could make. Others live on."""
        lease_seconds = self.site.settings.lease_seconds
        for process in self.site.processes():
            for _ in range(3):
                process.mishaps.add(Mishap("store", 1, Effect.REFUSED, name="renew"))
        self.site.pass_time(lease_seconds * share)
        self._submit(kind, ORDER, _OTHER_ORDER, replies=[Reply(Says.NOTHING, PUSH_SECONDS, made_after)] * 2)
        self.site.pass_time(3.0)
        for process in self.site.processes():
            process.mishaps.clear()
        for process in self.site.pushing()[:1]:
            process.crash()
        if again:
            self.site.start_one()
        self.site.pass_time(lease_seconds + 15.0)

    @rule(
        kind=draws.kinds,
        made_after=st.sampled_from([0.0, 20.0, None]),
        known=st.booleans(),
        before=draws.options,
        after=draws.options,
    )
    def options_change_after_a_push_without_an_answer(
        self, kind: str, made_after: float | None, known: bool, before: dict[str, bool], after: dict[str, bool]
    ) -> None:
        """Whoever sent it learns that it was not answered, or dies before."""
        self.site.accounts.set_options(kind, before)
        self.site.pass_time(10.0)
        self._submit(kind, ORDER, replies=[Reply(Says.NOTHING, 10.0, made_after)])
        self.site.pass_time(5.0)
        for process in [] if known else self.site.pushing():
            process.crash()
            self.site.start_one()
        self.site.accounts.set_options(kind, after)
        self.site.pass_time(self.site.settings.lease_seconds + 50.0)

    @rule(
        kind=draws.kinds,
        made_after=st.sampled_from([0.0, 20.0, None]),
        before=draws.options,
        meanwhile=draws.options,
    )
    def options_change_while_a_push_waits(
        self, kind: str, made_after: float | None, before: dict[str, bool], meanwhile: dict[str, bool]
    ) -> None:
        """For its room, and back again once it was made, by a worker that dies over it."""
        self.site.accounts.set_options(kind, before)
        self.site.pass_time(10.0)
        replies = [Reply(Says.YES, 15.0), Reply(Says.NOTHING, 20.0, made_after)]
        self._submit(kind, ORDER, ORDER, replies=replies)
        waits = list(self.site.callers.submitted)[-1]
        self.site.pass_time(3.0)
        self.site.accounts.set_options(kind, meanwhile)
        self._until(lambda: self.site.pmss.pushes.any_of(waits))
        for process in self.site.pushing():
            process.crash()
            self.site.start_one()
        self.site.accounts.set_options(kind, before)
        self.site.pass_time(self.site.settings.lease_seconds + 50.0)

    @rule(kind=draws.kinds, made_after=st.sampled_from([0.0, 20.0, None]), known=st.booleans())
    def rules_become_stricter_after_a_push_without_an_answer(
        self, kind: str, made_after: float | None, known: bool
    ) -> None:
        """By an upgrade: they would refuse now what was pushed."""
        self._submit(kind, ORDER, replies=[Reply(Says.NOTHING, 10.0, made_after)])
        self.site.pass_time(5.0)
        for process in [] if known else self.site.pushing():
            process.crash()
            self.site.start_one()
        self.site.accounts.apply_stricter_rules(kind)
        self.site.pass_time(self.site.settings.lease_seconds + 50.0)

    @rule(kind=draws.kinds_without_a_key, jump=st.sampled_from([-100.0, -3600.0]), during=st.booleans())
    def clock_is_set_back_during_a_look(self, kind: str, jump: float, during: bool) -> None:
        """What is looked for was in doubt at its deadline, and by that clock is before it again; or it is so shortly before."""
        self._submit(kind, replace(ORDER, deadline_seconds=60), replies=[Reply(Says.NOTHING, PUSH_SECONDS, None)])
        self.site.pmss.look_replies[kind].append(LookReply(after=10.0))
        reference = list(self.site.callers.submitted)[-1]
        if during:
            self._until(lambda: self.site.pmss.pushes.looked_for(reference))
        else:
            self._until(lambda: self._stands(reference, status="IN_DOUBT", leased=False))
            for process in self.site.processes():
                for _ in range(_MANY):
                    process.mishaps.add(Mishap("store", 1, Effect.LATE, 3.0, "claim"))
            self._until(lambda: self._stands(reference, status="IN_DOUBT", leased=True))
        for process in self.site.processes():
            process.mishaps.clear()
            process.clock.jump(jump)
        self.site.pass_time(60.0)

    @rule(kind=draws.kinds, place=draws.places, cancelled=st.booleans())
    def worker_is_left_without_partitions(self, kind: str, place: int, cancelled: bool) -> None:
        """One worker more than there are partitions; who is put out of the group comes back last, and is the one too many."""
        for _ in range(HOSTS):
            self.site.start_one()
        self.site.pass_time(5.0)
        self._submit(kind, ORDER, ORDER, ORDER, replies=[Reply(Says.YES, 10.0)] * 3)
        self.site.pass_time(3.0)
        self.site.put_out(place)
        self.site.pass_time(3.0)
        if cancelled:
            self.site.callers.cancel(list(self.site.callers.submitted)[-1], revision=0)
        self.site.pass_time(30.0)

    @rule(kind=draws.kinds, late=st.sampled_from(list(Late)), place=draws.places)
    def claim_is_answered_late(self, kind: str, late: Late, place: int) -> None:
        """What is in the store, and due, is claimed; before the answer comes, the worker hears of something else."""
        if late is Late.LEFT_WITHOUT:
            for _ in range(HOSTS):
                self.site.start_one()
            self.site.pass_time(5.0)
        self._put_due(kind)
        claims = self._strike_one_of(Mishap("store", 1, Effect.LATE, 10.0, "claim"))
        match late:
            case Late.CANCELLED:
                self.site.callers.cancel(list(self.site.callers.submitted)[-1], revision=0)
            case Late.PUT_OUT:
                self.site.put_out(place)
            case Late.LEFT_WITHOUT:
                self.site.put_out_of_group(claims)
        self.site.pass_time(30.0)

    @rule(
        kind=draws.kinds_without_a_key,
        effect=st.sampled_from([Effect.ROLLED_BACK, Effect.UNANSWERED]),
        connecting=st.sampled_from([5.0, 20.0]),
        reply=st.sampled_from([Reply(Says.YES, 20.0), Reply(Says.NOTHING, 10.0, 10.0)]),
    )
    def connection_dies_under_a_claim(self, kind: str, effect: Effect, connecting: float, reply: Reply) -> None:
        """It is away for a moment, and then long in coming for what is taken in next, but not for the claim that is tried again."""
        self._put_due(kind)
        self.site.pmss.replies[kind].append(reply)
        for process in self.site.processes():
            process.mishaps.add(Mishap("store", 1, Effect.LONG_CONNECTING, connecting, "ingest"))
            for _ in range(_MANY):
                process.mishaps.add(Mishap("store", 2, Effect.REFUSED, name="claim"))
        self._strike_one_of(Mishap("store", 1, effect, name="claim"))
        self.site.callers.submit(kind, ORDER)
        self._until_one_is_struck(Effect.LONG_CONNECTING)
        for process in self.site.processes():
            process.mishaps.clear()
        for _ in range(15):
            self.site.pass_time(3.0)
            self.guarantees_hold()

    @rule(
        account=draws.accounts,
        order=draws.orders,
        place=draws.places,
        jump=st.sampled_from([0.0, 100.0, -3600.0]),
        seconds=st.sampled_from([20.0, 60.0, 150.0, 150.0]),
    )
    def worker_is_stopped_with_a_queue(
        self, account: int, order: Order, place: int, jump: float, seconds: float
    ) -> None:
        self._submit(self.kinds[account], order, order, order, replies=[Reply(Says.YES, 10.0)])
        self.site.pass_time(3.0)
        for process in self.site.at(place):
            process.stop_for(seconds)
            process.clock.jump(jump)
        self.site.pass_time(seconds + 5.0)

    def _replay_last(self) -> None:
        for event_id, letter in self.site.operator.letters()[-1:]:
            self.site.operator.replay(event_id, letter)

    @rule(account=draws.accounts, order=draws.orders)
    def submission_fails_again(self, account: int, order: Order) -> None:
        self.site.pmss.be_down(self.kinds[account], 400.0)
        self._submit(self.kinds[account], replace(order, deadline_seconds=60), replies=[])
        self.site.pass_time(100.0)
        self._replay_last()
        self.site.pass_time(ACCOUNT_DEADLINE_SECONDS + 50.0)
        self.site.log.rewind()
        self.site.pass_time(20.0)

    def _submit(self, account_id: str, *orders: Order, replies: list[Reply]) -> None:
        self.site.pmss.replies[account_id].extend(replies)
        for order in orders:
            self.site.callers.submit(account_id, order)

    def _put_due(self, account_id: str) -> None:
        """A submission that is taken in, and held by nobody until the next sweep."""
        self.site.accounts.pause(account_id, paused=True)
        self._submit(account_id, ORDER, replies=[])
        self.site.pass_time(5.0)
        self.site.accounts.pause(account_id, paused=False)

    def _strike_one_of(self, mishap: Mishap) -> Sequence[Process]:
        """Return when it has struck somebody: whom."""
        for process in self.site.processes():
            process.mishaps.add(mishap)
        self._until_one_is_struck(mishap.effect)
        return [process for process in self.site.processes() if not process.mishaps.any_of(mishap.effect)]

    def _until_one_is_struck(self, effect: Effect) -> None:
        processes = self.site.processes()
        self._until(lambda: not all(process.mishaps.any_of(effect) for process in processes))

    def _stands(self, reference: str, *, status: str, leased: bool) -> bool:
        row = self.site.store.row(reference)
        return row is not None and row["status"] == status and (row["leased_by"] is not None) == leased

    def _until(self, come_about: Callable[[], bool]) -> None:
        """Wait for it, for a while."""
        for _ in range(_MANY):
            if come_about():
                return
            self.site.pass_time(0.5)

    # --- what always holds --------------------------------------------------------------------------------------------
    @invariant()
    def guarantees_hold(self) -> None:
        try:
            self.judge.check()
        except BaseException:
            self.broken = True
            raise
