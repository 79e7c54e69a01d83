"""A push shows what the PMS is like as soon as that has answered; what the push came to is recorded on its own."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from forwarder.process.loops import Fault, Where, cancel_all
from forwarder.reservation.evidence import Came
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Status, describe
from forwarder.store.submissions.port import Attempt, Ended, Postponed, StoreUnavailable, Work
from forwarder.tenancy.port import Account
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import MAX_TRIES, after_fault
from forwarder.worker.outcome.recorder import OutcomeRecorder
from forwarder.worker.parts import WorkerParts, WorkerSettings
from forwarder.worker.push import pipeline
from forwarder.worker.push.pipeline import Pusher, PushPipeline
from forwarder.worker.push.run import (
    NOT_ATTEMPTED,
    HealthSignal,
    LeaseLost,
    PmsHealth,
    PushClock,
    PushContext,
)
from tests.support.memory.clock import ManualClock
from tests.support.worker.works import NOW, account, carried, doubtful, work

DOWN = Deferred("pms_unavailable", "Down.")
CARRIED = carried().text
WORK = replace(work(), target=CARRIED)


class _Worker:
    """Pusher, outcome recorder and lease in one: pushes come to `outcome`."""

    def __init__(self, outcome: Outcome | Exception, *, asked: bool = True) -> None:
        self._outcome = outcome
        self._asked = asked
        self.worker_id = "worker-1"
        self.enqueued: list[PushContext] = []
        self.released: list[int] = []
        self.unpushed: list[int] = []
        self.pushed: list[int] = []
        self.sends = False
        self.deaths = 0
        self.suspected: list[int] = []
        self.store_away, self.has_lease, self.lease_lasts = 0, True, True

    async def sure(self) -> bool:
        return True

    async def suspect(self, _worker_id: str, work_id: int) -> int:
        self.suspected.append(work_id)
        return self.deaths

    def held(self) -> bool:
        return self.has_lease

    async def clear_suspects(self, work_ids: Collection[int]) -> None:
        if self.store_away:
            self.store_away -= 1
            self.has_lease = self.has_lease and self.lease_lasts
            raise StoreUnavailable("The database restarts.")
        self.suspected = [each for each in self.suspected if each not in work_ids]

    async def push(self, push: PushContext) -> None:
        self.pushed.append(push.work.id)
        push.sent = self.sends
        if isinstance(self._outcome, Exception):
            raise self._outcome
        name, reason, detail = describe(self._outcome)
        attempt = Attempt(1, "create", "2027-01-01T00:00:00.000Z", 5, name, reason, detail)
        push.outcome, push.attempts = self._outcome, (attempt,) if self._asked else ()

    def target(self, _account: Account) -> str:
        return CARRIED

    def seconds_to_wait(self, _account: Account, _work: Work) -> float:
        return 30.0

    @property
    def pushes(self) -> PushClock:
        return PushClock(ManualClock())

    def enqueue(self, push: PushContext) -> None:
        self.enqueued.append(push)

    def note_unpushed(self, work_id: int) -> None:
        self.unpushed.append(work_id)

    async def run(self, *, row: Work = WORK) -> HealthSignal:
        """What the queue is told. The row is released when what is recorded of it is, and not before."""
        pipeline = PushPipeline(
            cast("WorkerParts", SimpleNamespace(clock=ManualClock(), recorder=self, settings=WorkerSettings())),
            cast("Pusher", self),
            cast("OutcomeRecorder", self),
            cast("Lease", self),
        )
        signal = await pipeline.run([PushContext(account(), row, lambda work: self.released.append(work.id))])
        assert bool(self.released) is not bool(self.enqueued)
        for push in self.enqueued:
            push.release()
        assert self.released == [row.id]
        return signal


@pytest.mark.parametrize(
    ("outcome", "signal"),
    [
        (Confirmed("7"), HealthSignal(PmsHealth.WELL)),
        (DOWN, HealthSignal(PmsHealth.FAILING, "pms_unavailable")),
        (InDoubt("pms_timed_out", "Late."), HealthSignal(PmsHealth.FAILING, "pms_timed_out")),
        (Deferred("no_connection_free", "Busy."), HealthSignal(PmsHealth.UNKNOWN)),
    ],
)
async def test_what_the_push_found(outcome: Outcome, signal: HealthSignal) -> None:
    worker = _Worker(outcome)
    assert await worker.run() == signal
    assert len(worker.enqueued) == 1


async def test_a_pms_that_was_not_asked_is_not_attempted() -> None:
    assert await _Worker(Deferred("cannot_open", "Damaged."), asked=False).run() == NOT_ATTEMPTED


async def test_so_it_is_when_the_lease_was_lost() -> None:
    worker = _Worker(LeaseLost())
    assert await worker.run() == NOT_ATTEMPTED
    assert (worker.unpushed, worker.enqueued) == ([1], [])


async def test_what_may_not_have_come_to_rest_is_left_alone() -> None:
    unanswered = Attempt(1, "create", "2027-01-01T00:00:00.000Z", 5, "in_doubt")
    worker = _Worker(Confirmed("7"))
    assert await worker.run(row=work(possibly_sent=True, attempts=(unanswered,))) == NOT_ATTEMPTED
    assert worker.pushed == []
    (push,) = worker.enqueued
    assert push.decision == Postponed(push.work, (unanswered,), NOW, NOW + timedelta(seconds=30), doubtful())


@pytest.mark.parametrize("leased_with", ["", carried(key=False).text, None])
async def test_what_was_leased_under_other_options_is_given_back_unsent(leased_with: str | None) -> None:
    worker = _Worker(Confirmed("7"))
    assert await worker.run(row=replace(WORK, target=leased_with)) == NOT_ATTEMPTED
    assert (worker.pushed, worker.unpushed, worker.enqueued) == ([], [1], [])


async def test_a_fault_before_anything_is_sent_is_tried_again_and_ends_failed() -> None:
    row, decisions = WORK, []
    for _ in range(MAX_TRIES):
        worker = _Worker(RuntimeError("a bug"))
        assert await worker.run(row=row) == NOT_ATTEMPTED
        (push,) = worker.enqueued
        assert push.decision is not None
        decisions.append(push.decision)
        row = replace(row, attempts=tuple(push.decision.attempts))
    *_, ended = decisions
    assert isinstance(ended, Ended)
    assert ended.status is Status.FAILED
    assert [each.reason for each in row.attempts] == ["internal_error"] * MAX_TRIES
    assert all("err_" in (each.detail or "") and "a bug" not in (each.detail or "") for each in row.attempts)


async def test_a_fault_after_bytes_may_have_gone_is_in_doubt() -> None:
    worker = _Worker(RuntimeError("a bug"))
    worker.sends = True
    await worker.run()
    (push,) = worker.enqueued
    assert isinstance(push.decision, Postponed)
    assert [one.to.text for one in push.decision.evidence.open] == [CARRIED]
    row = replace(WORK, attempts=tuple(push.decision.attempts), evidence=push.decision.evidence)
    fault = Fault("err_1", Where.PUSH, RuntimeError("a bug"))
    ended = after_fault(PushContext(account(), row, sent=True), fault, now=NOW, push_seconds=30.0, last=True)
    assert isinstance(ended, Ended)
    assert (ended.status, ended.look_at is not None) == (Status.IN_DOUBT, True)


@pytest.mark.parametrize(
    ("outcome", "came"),
    [
        (Confirmed("7"), [Came.POSITIVE]),
        (InDoubt("pms_answer_not_understood", "", made=True), [Came.POSITIVE]),
        (InDoubt("pms_answer_not_understood", "", pms_reservation_id="7"), [Came.POSITIVE]),
        (InDoubt("pms_timed_out", "Late."), [Came.AMBIGUOUS]),
        (DOWN, []),
    ],
)
async def test_a_fault_takes_nothing_back_of_what_the_pms_said(
    outcome: Outcome, came: list[Came], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: object, **_named: object) -> None:
        raise OverflowError

    monkeypatch.setattr(pipeline, "decide", broken)
    worker = _Worker(outcome)
    await worker.run()
    (push,) = worker.enqueued
    assert isinstance(push.decision, Postponed)
    assert [one.came for one in push.decision.evidence.open] == came


@pytest.mark.parametrize(("deaths", "status"), [(0, Status.CONFIRMED), (1, Status.CONFIRMED), (2, Status.IN_DOUBT)])
async def test_a_row_over_which_workers_end_is_pushed_no_more(deaths: int, status: Status) -> None:
    """And one that was merely held by workers that were killed is."""
    worker = _Worker(Confirmed("7"))
    worker.deaths = deaths
    await worker.run(row=replace(WORK, takeovers=9))
    (push,) = worker.enqueued
    assert isinstance(push.decision, Ended)
    assert (push.decision.status, push.decision.look_at) == (status, None)
    assert worker.pushed == ([] if status is Status.IN_DOUBT else [WORK.id])
    assert worker.suspected == [], "it is known what became of it"


@pytest.mark.parametrize("lease_lasts", [True, False])
async def test_a_push_that_ends_while_the_store_is_away_leaves_no_mark_as_if_its_worker_had_died(
    monkeypatch: pytest.MonkeyPatch, *, lease_lasts: bool
) -> None:
    """The worker that pushes the row next would count it, and give the row up. Without its lease, this one waits no longer."""
    monkeypatch.setattr(pipeline, "CLEAR_AGAIN_SECONDS", 0.0)
    worker = _Worker(Confirmed("7"))
    worker.store_away, worker.lease_lasts = 3, lease_lasts
    await worker.run(row=replace(WORK, takeovers=9))
    assert worker.suspected == ([] if lease_lasts else [WORK.id])


async def test_a_worker_that_is_stopped_does_not_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease may last for most of a minute."""
    monkeypatch.setattr(pipeline, "CLEAR_AGAIN_SECONDS", 0.0)
    worker, under_way = _Worker(Confirmed("7")), asyncio.Event()
    worker.store_away = 3

    async def hangs(_push: PushContext) -> None:
        under_way.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(worker, "push", hangs)
    pushing = asyncio.create_task(worker.run(row=replace(WORK, takeovers=9)))
    await under_way.wait()
    await cancel_all([pushing])
    assert pushing.cancelled()
    assert worker.store_away == 2, "it tried once"
