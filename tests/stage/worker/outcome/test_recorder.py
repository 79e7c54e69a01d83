"""What is enqueued to be recorded is released once, whatever becomes of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace as replace_struct
from structlog.testing import capture_logs

from forwarder.observability.metrics import registry
from forwarder.process.loops import LOOPS, SYSTEMIC_AFTER
from forwarder.reservation.evidence import Came
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected, Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import SealedCard
from forwarder.store.submissions.port import (
    Attempt,
    CardKey,
    Ended,
    OutboxEvent,
    Postponed,
    Work,
    completed,
    with_attempt,
)
from forwarder.store.submissions.recorder import Recorder
from forwarder.topics.port import Topics
from forwarder.worker.lease import Lease
from forwarder.worker.outcome.policy import decide
from forwarder.worker.outcome.recorder import OutboxPublisher, OutcomeRecorder
from forwarder.worker.parts import WorkerSettings
from forwarder.worker.push.run import PushContext
from tests.support.log.signers import SIGNER
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.log import MemoryLog
from tests.support.worker.cards import MemoryCardKeys, memory_vault
from tests.support.worker.queue_site import parts_of
from tests.support.worker.works import NOW, account, work


class _Store:
    """Records whatever it is given. Where `bug` is set, raises it for what has a row of `refuses` in it: for what is confirmed or
    postponed of it alone, unless it is `for_good`."""

    def __init__(self) -> None:
        self.recorded: list[int] = []
        self.asked = 0
        self.bug: Exception | None = None
        self.refuses = {1}
        self.for_good = False

    async def record(
        self, _worker_id: str, finals: Sequence[Ended], postponed: Sequence[Postponed]
    ) -> Mapping[int, OutboxEvent]:
        self.asked += 1
        refused = not self.refuses.isdisjoint(
            [*(each.work_id for each in finals), *(each.work.id for each in postponed)]
        )
        if self.bug is not None and refused and (self.for_good or all(each.pms_reservation_id for each in finals)):
            raise self.bug
        self.recorded += [each.work.id for each in postponed]
        return {each.work_id: OutboxEvent(each.work_id, each.event, None, in_turn=True) for each in finals}

    async def renew(self, _worker_id: str, *, seconds: float) -> bool:
        """Every lease is lost."""
        return seconds < 0


class _Site:
    def __init__(self, keys: MemoryCardKeys | None = None) -> None:
        clock, topics, self.store = ManualClock(), Topics(), _Store()
        self.clock = clock
        recorder, settings = cast("Recorder", self.store), WorkerSettings(pause_seconds=0.0)
        self.lease = Lease(recorder, clock, 30.0)
        others = {"publisher": MemoryLog(clock), "signer": SIGNER, "topics": topics}
        parts = parts_of(recorder, cast("Any", None), clock, settings, **others)
        self.outcomes = OutcomeRecorder(parts, OutboxPublisher(parts), self.lease, memory_vault(keys))
        self.released: list[int] = []

    def pushed(self, number: int, *outcomes: Outcome) -> PushContext:
        """It came to the last of these, an attempt each."""
        row = replace(work(number), leased_by=self.lease.worker_id)
        attempts: tuple[Attempt, ...] = ()
        for outcome in outcomes:
            attempts = with_attempt(attempts, "create", "2027-01-01T00:00:00.000Z", 0.1, outcome)
        push = PushContext(account(), row, self._note_released, outcome=outcomes[-1], attempts=attempts)
        push.decision = decide(push, now=NOW, jitter=0.0)
        return push

    def _note_released(self, row: Work) -> None:
        self.released.append(row.id)

    def push(self, number: int, *, leased_by: str | None = None) -> PushContext:
        row = replace(work(number), leased_by=self.lease.worker_id if leased_by is None else leased_by)
        return PushContext(
            account(),
            row,
            self._note_released,
            outcome=Deferred("pms_unavailable", "Down."),
            decision=Postponed(row, (), NOW, NOW),
        )


async def test_each_is_released_and_logged_once_whether_it_was_recorded_or_not() -> None:
    site = _Site()
    for push in (site.push(1), site.push(2, leased_by="before")):
        site.outcomes.enqueue(push)
    assert site.released == []
    with capture_logs() as logs:
        await site.outcomes.drain()
    assert site.released == [1, 2]
    assert [(entry["reservation_id"], entry["recorded"]) for entry in logs] == [(1, True), (2, False)]
    assert site.store.recorded == [1]


@pytest.mark.parametrize(("status", "destroyed"), [(Status.FAILED, True), (Status.IN_DOUBT, False), (None, False)])
async def test_a_card_is_destroyed_with_the_final_outcome_and_kept_till_then(
    status: Status | None, destroyed: bool
) -> None:
    keys = MemoryCardKeys()
    site = _Site(keys)
    card = SealedCard("sealed", "4242")
    row = replace(work(1, card=card), leased_by=site.lease.worker_id)
    keys.held[row.submission.request_id] = CardKey(row.submission.request_id, "secret", "number", None, NOW)
    decision: Ended | Postponed = Postponed(row, (), NOW, NOW)
    if status is not None:
        decision = completed(row, (), status, now=NOW, problem=Problem("delivery_failed", "", 502, ""))
    await site.outcomes.record(
        PushContext(account(), row, outcome=InDoubt("pms_timed_out", "No answer."), decision=decision)
    )
    assert (keys.held == {}) is destroyed


async def test_who_waits_learns_the_same() -> None:
    site = _Site()
    assert await site.outcomes.record(site.push(1))
    assert not await site.outcomes.record(site.push(2, leased_by="before"))


async def test_what_cannot_be_recorded_as_it_was_decided_is_set_aside_and_the_others_are_recorded() -> None:
    """It may have been made, so it is in doubt; nothing of what the PMS said is in what is recorded of it."""
    site = _Site()
    site.store.bug = RuntimeError("a bug")
    others = [site.pushed(number, Confirmed(f"pms-{number}")) for number in range(2, 11)]
    poison = site.pushed(1, Confirmed("pms-1", {"notes": "poison"}))
    recorded = await asyncio.gather(*(site.outcomes.record(each) for each in (*others[:4], poison, *others[4:])))
    assert recorded == [True] * 10
    assert sorted(site.released) == list(range(1, 11))
    assert all(isinstance(each.decision, Ended) and each.decision.status is Status.CONFIRMED for each in others)
    ended = poison.decision
    assert isinstance(ended, Ended)
    assert (ended.status, [each.reason for each in ended.attempts]) == (Status.IN_DOUBT, ["internal_error"])
    assert b"poison" not in b"".join(ended.event.written)
    assert [push.came for push in ended.evidence.open] == [Came.POSITIVE], "the PMS said that it made it"


async def test_what_cannot_be_recorded_at_all_is_released_to_the_lease() -> None:
    site = _Site()
    site.store.bug, site.store.for_good = RuntimeError("a bug"), True
    with capture_logs() as logs:
        recording = asyncio.create_task(site.outcomes.record(site.push(1)))
        await settle()
        assert not recording.done()  # the fault may pass
        await site.clock.advance(0.2)
        await site.clock.advance(1.0)
        with pytest.raises(RuntimeError):
            await recording
        assert await site.outcomes.record(site.push(3))
    assert site.released == [1, 3]
    assert [entry["recorded"] for entry in logs if entry["event"] == "push.recorded"] == [False, True]


async def test_what_an_outage_of_this_process_keeps_from_being_recorded_is_released_once_the_lease_is_lost() -> None:
    """The rows are not to blame, so none is set aside; they are tried again for as long as they are this worker's."""
    site = _Site()
    numbers = set(range(1, SYSTEMIC_AFTER + 1))
    site.store.bug, site.store.for_good, site.store.refuses = RuntimeError("a bug"), True, numbers
    with capture_logs():
        for number in numbers:
            site.outcomes.enqueue(site.push(number))
        for _ in range(3):
            await settle()
            await site.clock.advance(60.0)
        assert (site.released, LOOPS.failing()) == ([], ["outcomes"])
        asked = site.store.asked
        assert not await site.lease.renew()
        await site.clock.advance(60.0)
        await site.outcomes.drain()
    assert site.released == sorted(numbers)
    assert (site.store.asked, site.store.recorded, LOOPS.failing()) == (asked, [], [])


@pytest.mark.usefixtures("nothing_usual_is_told")
async def test_what_is_confirmed_at_the_first_attempt_may_go_untold_and_nothing_else() -> None:
    site = _Site()
    down, made = Deferred("pms_unavailable", "Down."), Confirmed("pms-1")
    refused = Rejected(Problem("room_unavailable", "Taken", 409, "These nights are taken."))
    for push in (site.pushed(1, made), site.pushed(2, down, made), site.pushed(3, down), site.pushed(4, refused)):
        site.outcomes.enqueue(push)
    with capture_logs() as logs:
        await site.outcomes.drain()
    told = [(entry["reservation_id"], entry["status"]) for entry in logs if entry["event"] == "push.recorded"]
    assert told == [(2, "CONFIRMED"), (3, "PENDING"), (4, "REJECTED")]


async def test_the_log_line_has_all_that_was_learned() -> None:
    site = _Site()
    push = site.pushed(1, Deferred("pms_unavailable", "Down."), Confirmed("pms-1"))
    await site.clock.advance(90.0)
    with capture_logs() as logs:
        await site.outcomes.record(push)
    assert logs == [
        {
            "event": "push.recorded",
            "log_level": "info",
            "request_id": push.work.submission.request_id,
            "reservation_id": 1,
            "account_id": "acc",
            "workspace_id": "demo",
            "kind": "generic",
            "status": "CONFIRMED",
            "outcome": "confirmed",
            "reason": None,
            "attempts": 2,
            "duration_ms": 100,
            "age_ms": 90_000,
            "recorded": True,
            "trace_id": None,
        }
    ]


@pytest.mark.parametrize("ended", [{"error": ValueError()}, {"outcome": None}])
async def test_a_push_without_an_outcome_is_not_logged_again(ended: Mapping[str, Any]) -> None:
    """The step that ended it has logged the reason."""
    site = _Site()
    with capture_logs() as logs:
        assert await site.outcomes.record(replace_struct(site.push(1), **ended))
    assert logs == []


async def test_a_second_reservation_in_the_pms_is_reported_once_by_the_worker_that_records_it() -> None:
    site = _Site()
    double = Confirmed("pms-1", doubles=("pms-2",))
    first = site.pushed(1, double)
    lost = replace_struct(site.pushed(2, double), work=replace(work(2), leased_by="before"))
    with capture_logs() as logs:
        await asyncio.gather(
            *(site.outcomes.record(each) for each in (first, lost, site.pushed(3, Confirmed("pms-3"))))
        )
    doubled = [each for each in logs if each["event"] == "reservation.doubled"]
    assert [(each["request_id"], each["pms_reservation_id"], each["others"]) for each in doubled] == [
        (first.work.submission.request_id, "pms-1", ["pms-2"])
    ]


async def test_each_recorded_outcome_is_counted_with_its_age_and_a_retry_is_not() -> None:
    site = _Site()

    def counted() -> dict[str, float]:
        names = {
            "confirmed": ("forwarder_outcomes_total", {"kind": "generic", "status": "CONFIRMED"}),
            "timed": ("forwarder_accept_to_outcome_seconds_count", {"status": "CONFIRMED"}),
            "seconds": ("forwarder_accept_to_outcome_seconds_sum", {"status": "CONFIRMED"}),
        }
        return {key: registry().get_sample_value(*name) or 0.0 for key, name in names.items()}

    before = counted()
    lost = replace_struct(site.pushed(2, Confirmed("pms-2")), work=replace(work(2), leased_by="before"))
    made = [site.pushed(number, Confirmed(f"pms-{number}")) for number in (1, 3)]
    aged = made[1].decision
    assert isinstance(aged, Ended)
    made[1].decision = replace(aged, updated_at=NOW + timedelta(seconds=8.0))
    await asyncio.gather(*(site.outcomes.record(each) for each in (*made, lost, site.push(4))))
    after = counted()
    grown = {key: after[key] - before[key] for key in after}
    assert grown == pytest.approx({"confirmed": 2.0, "timed": 2.0, "seconds": 8.0})  # others' sums were there before
