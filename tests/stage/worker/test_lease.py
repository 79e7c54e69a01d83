"""Leases by monotonic clocks alone: what a holder may trust, and whom a watcher takes for stopped."""

import random
from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from forwarder.store.engine import open_engine
from forwarder.store.submissions.port import Heartbeat, StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.worker.lease import Lease, LeaseWatch
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.store.stored import arrivals, take_over
from tests.support.worker.works import NOW

SECONDS = 30.0


def heartbeat(sequence: int, worker_id: str = "w1", *, seconds: float = SECONDS) -> Heartbeat:
    return Heartbeat(worker_id, sequence, seconds)


# --- who watches ----------------------------------------------------------------------------------------------------------


async def test_who_is_seen_for_the_first_time_is_not_stopped() -> None:
    clock = ManualClock()
    await clock.advance(10 * SECONDS)
    assert LeaseWatch(clock).stopped([heartbeat(0), heartbeat(9, "w2")]) == []


async def test_whose_beat_stands_still_for_its_lease_is_stopped() -> None:
    clock = ManualClock()
    watch = LeaseWatch(clock)
    watch.stopped([heartbeat(4)])
    await clock.advance(SECONDS - 0.001)
    assert watch.stopped([heartbeat(4)]) == []
    await clock.advance(0.001)
    assert watch.stopped([heartbeat(4)]) == [heartbeat(4)]
    await clock.advance(1.0)
    assert watch.stopped([heartbeat(4)]) == [heartbeat(4)]


async def test_a_beat_begins_the_lease_anew(clock: ManualClock) -> None:
    watch = LeaseWatch(clock)
    for sequence in range(5):
        assert watch.stopped([heartbeat(sequence)]) == []
        await clock.advance(SECONDS - 1.0)
    assert watch.stopped([heartbeat(5)]) == []
    await clock.advance(SECONDS - 1.0)
    assert watch.stopped([heartbeat(5)]) == []
    await clock.advance(1.0)
    assert watch.stopped([heartbeat(5)]) == [heartbeat(5)]


async def test_each_holder_has_its_own_lease(clock: ManualClock) -> None:
    watch = LeaseWatch(clock)
    held = [heartbeat(0, "short", seconds=5.0), heartbeat(0, "long", seconds=60.0)]
    watch.stopped(held)
    await clock.advance(10.0)
    assert watch.stopped(held) == held[:1]
    await clock.advance(50.0)
    assert watch.stopped(held) == held


async def test_who_was_gone_meanwhile_is_seen_for_the_first_time_again(clock: ManualClock) -> None:
    watch = LeaseWatch(clock)
    watch.stopped([heartbeat(0)])
    await clock.advance(SECONDS / 2)
    assert watch.stopped([]) == []
    await clock.advance(SECONDS / 2)
    assert watch.stopped([heartbeat(0)]) == []


class _Jumping(ManualClock):
    """Its wall clock is put forward and back by an hour all the time."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=random.choice([-1, 0, 1]))


async def test_no_wall_clock_that_jumps_stops_anybody() -> None:
    clock = _Jumping()
    watch = LeaseWatch(clock)
    for _ in range(60):
        assert watch.stopped([heartbeat(7)]) == []
        await clock.advance(0.4)
    await clock.advance(10.0)
    assert watch.stopped([heartbeat(7)]) == [heartbeat(7)]


@for_each("seed", range(20))
async def test_who_lives_is_never_taken_for_stopped_and_who_died_soon_is(seed: int) -> None:
    """A holder renews within its lease, and two watchers look when they like; then it stops."""
    chance, clock = random.Random(seed), ManualClock()
    watches = [LeaseWatch(clock), LeaseWatch(clock)]
    sequence, renewed_at = 0, 0.0
    for _ in range(300):
        await clock.advance(chance.uniform(0.0, SECONDS / 4))
        if clock.monotonic() - renewed_at > chance.uniform(0.0, SECONDS * 3 / 4):
            sequence, renewed_at = sequence + 1, clock.monotonic()
        assert chance.choice(watches).stopped([heartbeat(sequence)]) == []
    for watch in watches:
        watch.stopped([heartbeat(sequence)])
    await clock.advance(SECONDS)
    assert [watch.stopped([heartbeat(sequence)]) for watch in watches] == [[heartbeat(sequence)]] * 2


# --- who holds ------------------------------------------------------------------------------------------------------------


class _Store(Recorder):
    """A store that may take its time to answer a renewal, or be away."""

    slow_seconds = 0.0
    away = False
    clock: ManualClock

    async def renew(self, worker_id: str, *, seconds: float) -> bool:
        if self.away:
            raise StoreUnavailable("away")
        renewed = await super().renew(worker_id, seconds=seconds)
        await self.clock.advance(self.slow_seconds)
        return renewed


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
async def store(data_dir: Path, clock: ManualClock) -> AsyncIterator[_Store]:
    engine = open_engine(data_dir / "store.sqlite3")
    store = _Store(engine)
    store.clock = clock
    yield store
    await engine.dispose()


async def test_a_lease_is_held_from_its_first_renewal_for_as_long_as_it_lasts(
    store: _Store, clock: ManualClock
) -> None:
    lease = Lease(store, clock, SECONDS)
    assert not lease.held()
    assert await lease.renew()
    await clock.advance(SECONDS - 0.001)
    assert lease.held()
    await clock.advance(0.001)
    assert not lease.held()
    assert await lease.renew()
    assert lease.held()


async def test_a_renewal_counts_from_when_it_was_asked_for(store: _Store, clock: ManualClock) -> None:
    """Whoever watches may have seen the beat as soon as the store had it."""
    lease = Lease(store, clock, SECONDS)
    store.slow_seconds = SECONDS - 1.0
    assert await lease.renew()
    assert lease.held()
    await clock.advance(1.0)
    assert not lease.held()


async def test_while_the_store_is_away_the_lease_runs_on_to_its_end(store: _Store, clock: ManualClock) -> None:
    lease = Lease(store, clock, SECONDS)
    await lease.renew()
    store.away = True
    await clock.advance(lease.interval_seconds)
    assert await lease.keep()
    assert lease.held()
    await clock.advance(2 * lease.interval_seconds)
    assert not lease.held()


async def test_who_was_taken_over_begins_as_somebody_new_that_holds_nothing(store: _Store, clock: ManualClock) -> None:
    lease = Lease(store, clock, SECONDS)
    await lease.renew()
    former = lease.worker_id
    (work,) = await store.ingest(former, arrivals([1]), now=NOW)
    assert lease.covers(work)
    assert await take_over(store, former) == 1
    assert not await lease.keep()
    assert not lease.held()
    assert lease.worker_id != former
    assert await lease.renew()
    assert [each.worker_id for each in await store.heartbeats()] == [lease.worker_id]
    assert not lease.covers(work)


async def test_a_loss_is_told_wherever_it_is_noticed(store: _Store, clock: ManualClock) -> None:
    losses: list[str] = []
    lease = Lease(store, clock, SECONDS, on_lost=lambda: losses.append(lease.worker_id))
    await lease.renew()
    await store.ingest(lease.worker_id, arrivals([1]), now=NOW)
    await take_over(store, lease.worker_id)
    assert losses == []
    assert not await lease.renew()
    assert losses == [lease.worker_id]
    assert not lease.held()


async def test_what_was_left_unpushed_is_given_back(store: _Store, clock: ManualClock) -> None:
    lease = Lease(store, clock, SECONDS)
    await lease.renew()
    (work, _) = await store.ingest(lease.worker_id, arrivals([1, 2]), now=NOW)
    lease.note_unpushed(work.id)
    await lease.give_back_unpushed()
    assert await store.count_due(now=NOW) == 1
    (again,) = await store.claim(lease.worker_id, "acc", range(16), now=NOW, limit=5)
    assert (again.id, again.possibly_sent) == (work.id, False)
    await lease.give_back_unpushed()
    assert await store.count_due(now=NOW) == 0


async def test_what_could_not_be_given_back_is_not_forgotten(
    store: _Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(store, clock, SECONDS)
    await lease.renew()
    (work, _) = await store.ingest(lease.worker_id, arrivals([1, 2]), now=NOW)

    async def away(*_arguments: object) -> None:
        raise StoreUnavailable("away, for now")

    with monkeypatch.context() as outage:
        outage.setattr(store, "release", away)
        with pytest.raises(StoreUnavailable):
            await lease.give_back([work.id])
    assert await store.count_due(now=NOW) == 0
    await lease.give_back_unpushed()
    assert await store.count_due(now=NOW) == 1


async def test_what_is_claimed_again_is_not_given_back_although_its_giving_back_was_not_answered(
    store: _Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(store, clock, SECONDS)
    await lease.renew()
    (work,) = await store.ingest(lease.worker_id, arrivals([1]), now=NOW)
    release = store.release

    async def unanswered(worker_id: str, work_ids: Collection[int]) -> None:
        await release(worker_id, work_ids)
        raise StoreUnavailable("the answer was lost")

    with monkeypatch.context() as outage:
        outage.setattr(store, "release", unanswered)
        with pytest.raises(StoreUnavailable):
            await lease.give_back([work.id])
    (again,) = await lease.claim(lambda worker_id: store.claim(worker_id, "acc", range(16), now=NOW, limit=5))
    assert again.id == work.id
    await lease.give_back_unpushed()
    assert await store.count_due(now=NOW) == 0


async def test_what_is_given_up_is_free_for_the_next_who_looks(store: _Store, clock: ManualClock) -> None:
    lease = Lease(store, clock, SECONDS)
    await lease.renew()
    await store.ingest(lease.worker_id, arrivals([1]), now=NOW)
    await lease.end()
    assert not lease.held()
    assert await store.take_over([], now=NOW) == 1


def test_a_lease_is_renewed_three_times_before_it_ends(store: _Store, clock: ManualClock) -> None:
    assert Lease(store, clock, SECONDS).interval_seconds == SECONDS / 3
