"""A delivery says what it found of the PMS as soon as the PMS has answered; what that came to is recorded on its own."""

from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from forwarder.operations.completion import describe
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome
from forwarder.store.submissions.work import Attempt, Postponed, Work
from forwarder.tenancy.port import Account
from forwarder.worker.dispatch.breaker import Health
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.recorder import DecidedOutcome, OutcomeRecorder
from forwarder.worker.push.delivery import PushPipeline
from forwarder.worker.push.health_signal import NOT_ATTEMPTED, HealthSignal
from forwarder.worker.push.pusher import Pusher
from forwarder.worker.push.result import LeaseLost, PushResult
from tests.support.memory.clock import ManualClock
from tests.support.worker.works import NOW, account, carried, work

DOWN = Deferred("pms_unavailable", "Down.")
CARRIED = carried()
WORK = replace(work(), safeguards=CARRIED)


class _Worker:
    """Pusher, settlement and lease in one: pushes come to `outcome`."""

    def __init__(self, outcome: Outcome | Exception, *, asked: bool = True) -> None:
        self._outcome = outcome
        self._asked = asked
        self.worker_id = "worker-1"
        self.handed_in: list[DecidedOutcome] = []
        self.left: list[int] = []
        self.unpushed: list[int] = []
        self.pushed: list[int] = []

    async def push(self, _account: Account, work: Work) -> PushResult:
        self.pushed.append(work.id)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        name, reason, detail = describe(self._outcome)
        attempt = Attempt(1, "create", "2027-01-01T00:00:00.000Z", 5, name, reason, detail)
        return PushResult(self._outcome, (attempt,) if self._asked else (), possibly_sent=False)

    def safeguards(self, _account: Account) -> str:
        return CARRIED

    def hand_in(self, settled: DecidedOutcome) -> None:
        self.handed_in.append(settled)

    def note_unpushed(self, work_id: int) -> None:
        self.unpushed.append(work_id)

    async def deliver(self, *, row: Work = WORK) -> HealthSignal:
        """What the lane hears. The row leaves when what is recorded of it is, and not before."""
        delivery = PushPipeline(
            cast("Pusher", self), cast("OutcomeRecorder", self), cast("Lease", self), ManualClock(), settle_seconds=30.0
        )
        finding = await delivery.deliver(account(), row, lambda left: self.left.append(left.id))
        assert bool(self.left) is not bool(self.handed_in)
        for settled in self.handed_in:
            settled.then(True)
        assert self.left == [row.id]
        return finding


@pytest.mark.parametrize(
    ("outcome", "finding"),
    [
        (Confirmed("7"), HealthSignal(Health.WELL)),
        (DOWN, HealthSignal(Health.FAILING, "pms_unavailable")),
        (InDoubt("pms_timed_out", "Late."), HealthSignal(Health.FAILING, "pms_timed_out")),
        (Deferred("no_connection_free", "Busy."), HealthSignal(Health.UNKNOWN)),
    ],
)
async def test_what_the_push_found(outcome: Outcome, finding: HealthSignal) -> None:
    worker = _Worker(outcome)
    assert await worker.deliver() == finding
    assert len(worker.handed_in) == 1


async def test_a_pms_that_was_not_asked_is_untouched() -> None:
    assert await _Worker(Deferred("cannot_open", "Damaged."), asked=False).deliver() == NOT_ATTEMPTED


async def test_so_it_is_when_the_lease_was_lost() -> None:
    worker = _Worker(LeaseLost())
    assert await worker.deliver() == NOT_ATTEMPTED
    assert (worker.unpushed, worker.handed_in) == ([1], [])


async def test_what_may_not_have_come_to_rest_is_left_alone() -> None:
    unanswered = Attempt(1, "create", "2027-01-01T00:00:00.000Z", 5, "in_doubt")
    worker = _Worker(Confirmed("7"))
    assert await worker.deliver(row=work(possibly_sent=True, attempts=(unanswered,))) == NOT_ATTEMPTED
    assert worker.pushed == []
    (settled,) = worker.handed_in
    assert settled.verdict == Postponed(
        1, (unanswered,), NOW, NOW + timedelta(seconds=30), possibly_sent=True, sent_safeguards=CARRIED
    )


@pytest.mark.parametrize("leased_with", ["", carried(key=False), None])
async def test_what_was_leased_under_other_options_is_given_back_unsent(leased_with: str | None) -> None:
    worker = _Worker(Confirmed("7"))
    assert await worker.deliver(row=replace(WORK, safeguards=leased_with)) == NOT_ATTEMPTED
    assert (worker.pushed, worker.unpushed, worker.handed_in) == ([], [1], [])


async def test_and_by_a_bug_of_ours() -> None:
    worker = _Worker(RuntimeError("a bug"))
    assert await worker.deliver() == NOT_ATTEMPTED
    assert len(worker.handed_in) == 1
