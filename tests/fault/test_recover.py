"""`forwarder recover` on a store that lost more than submissions: replays, cancellations, alike submissions. It runs alone,
and can be killed anywhere and run again."""

import asyncio
import shutil
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_core import from_json, to_json
from sqlalchemy import func, select

from forwarder.operate.deployment import topic_copy
from forwarder.operate.deployment.recovery import LeasesInForce, Recovery
from forwarder.operate.output import Failed
from forwarder.process.clock import SystemClock
from forwarder.reservation.outcome import (
    CancellationRequest,
    CancellationStatus,
    Cancelled,
    CancelOutcome,
    Deferred,
    Rejected,
    Status,
)
from forwarder.reservation.problems import CANCELLATION_REFUSED
from forwarder.reservation.submission import NaturalKey, Submission
from forwarder.store.database import Database
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import StoreRecovery
from forwarder.store.tables import duplicates, outbox, reservations
from forwarder.topics.codec import encode_cancellation, replayed
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.port import ConsumedMessage, Log, read_to_end
from tests.fault import test_restore as restore
from tests.fault.test_restore import HOUSE_SETTINGS, PATIENCE_SECONDS, House, copied
from tests.support.backends import Backend, slow_on
from tests.support.log.signers import SIGNER
from tests.support.worker.worker_bench import fresh, message_of
from tools.contracts.messages import result_messages

Scene = Callable[["Loss"], Awaitable[None]]


class Loss:
    """A store, and after `lose` the snapshot of it in its place."""

    def __init__(self, house: House, backend: Backend, url: str, server_url: str | None, stack: AsyncExitStack) -> None:
        self.house = house
        self._where = backend, url, server_url
        self._stack = stack
        self._snapshot = ""
        self.engine = open_engine(url)

    async def keep_snapshot(self) -> None:
        backend, url, server_url = self._where
        await self.engine.dispose()
        self._snapshot = await self._stack.enter_async_context(copied(backend, url, server_url))
        self.engine = open_engine(url)

    async def lose(self) -> None:
        await self.engine.dispose()
        self.engine = open_engine(self._snapshot)

    async def publish(self, *messages: Any) -> None:
        async with self.house.log.publisher() as publisher:
            await publisher.publish(self.house.topics.requests, [SIGNER.signed(each) for each in messages])

    async def submit(self, account: str, **fields: Any) -> Submission:
        house = self.house
        one = fresh(len(house.submitted) + 1, account=account)
        one = replace(one, request_id=house.ids.issue(account, one.accepted_at), **fields)
        house.submitted.append(one)
        await self.publish(message_of(one))
        return one

    async def replay(self) -> None:
        async with self.house.log.publisher() as publisher:
            batches = [batch async for batch in read_to_end(self.house.log, self.house.topics.dead_letters)]
            letter = batches[-1][-1].message
            await publisher.publish(self.house.topics.requests, [SIGNER.signed_like(letter, replayed(letter))])

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():
                await asyncio.sleep(0.02)

    async def until_committed(self) -> None:
        """Pushes begin before the offset of their message is committed, and a recovery leaves out what comes after it."""

        async def committed() -> bool:
            async with self.house.log.admin() as admin:
                lag = await admin.lag(self.house.topics.requests, group=HOUSE_SETTINGS.group)
            return not any(each.messages for each in lag)

        await self.until(committed)

    async def rows(self) -> Mapping[str, tuple[Any, ...]]:
        columns = reservations.c
        found = select(
            *(columns.request_id, columns.status, columns.revision, columns.possibly_sent, columns.natural_key),
            *(columns.leased_by, columns.cancel_requested_at.is_not(None).label("cancelled")),
        )
        return {row.request_id: tuple(row)[1:] for row in await Database(self.engine).read(found)}


def played(scene: Scene, backend: Backend, log: Log, url: str, request: pytest.FixtureRequest) -> None:
    server_url = request.getfixturevalue("postgres_url") if backend == "distributed" else None

    async def run() -> None:
        house = House(log)
        async with house.log.admin() as admin:
            await admin.create(dict.fromkeys(house.topics.all(), 2))
        async with AsyncExitStack() as stack:
            loss = Loss(house, backend, url, server_url, stack)
            try:
                await scene(loss)
            finally:
                await loss.engine.dispose()

    asyncio.run(run())


# --- what was lost --------------------------------------------------------------------------------------------------------


async def failed_then_replayed_and_lost(
    loss: Loss, account: str, *, again: Mapping[str, Any] | None = None
) -> Submission:
    """It failed before the snapshot; after it, it was replayed and made, and the answer never came. `again`: the fields of a
    submission that then repeats it."""
    house = loss.house
    house.pmss.down = True
    one = await loss.submit(account, deadline_seconds=2, **again or {})
    async with house.worker(loss.engine):
        await house.until(loss.engine, [one], Status.FAILED)
        await house.until_told(1)
    await loss.keep_snapshot()
    house.pmss.down = False
    house.pmss.silent.set()
    await loss.replay()
    async with house.worker(loss.engine, replace(HOUSE_SETTINGS, grace_seconds=0.2)):

        async def made() -> bool:
            return bool(house.pmss.made[one.request_id])

        await loss.until(made)
        if again is not None:
            await loss.submit(account, reservation=one.reservation, **again)  # in the same partition

            async def ingested() -> bool:
                return sum((await house.check(loss.engine).committed()).values()) == 3  # it, its replay, its repeat

            await loss.until(ingested)
    house.pmss.silent.clear()
    await loss.lose()
    return one


@pytest.mark.parametrize(
    "account", ["searched", *(pytest.param(name, marks=pytest.mark.slow) for name in ("keyed", "blind"))]
)
@slow_on("distributed")
def test_a_dead_letter_that_was_put_back_after_the_snapshot_is_possibly_sent(
    account: str, backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    async def scene(loss: Loss) -> None:
        house = loss.house
        one = await failed_then_replayed_and_lost(loss, account)
        assert await house.check(loss.engine).lacking() == {"replays": 1}
        async with house.recovery(loss.engine) as recovery:
            foreseen = await recovery.run(dry_run=True)
            done = await recovery.run()
        assert done == foreseen
        assert (done.replayed, done.possibly_sent) == (1, 1)
        assert await house.check(loss.engine).lacking() == {}
        await loss.replay()  # once more, by an operator who does not see it
        async with house.worker(loss.engine):
            await house.until(loss.engine, [one], Status.IN_DOUBT if account == "blind" else Status.CONFIRMED)
        assert house.pmss.made[one.request_id] == 1

    played(scene, backend, log, migrated_url, request)


@slow_on("distributed")
def test_a_loss_of_cancellations_alone_is_noticed(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = True

    async def cancel(*_: object) -> CancelOutcome:
        return Deferred("pms_unavailable", "Down.") if down else Cancelled()

    monkeypatch.setattr(restore.PmsOfAccount, "cancel", cancel)
    monkeypatch.setitem(restore.ACCOUNTS, "searched", replace(restore.ACCOUNTS["searched"], cancel=True))

    async def scene(loss: Loss) -> None:
        nonlocal down
        house = loss.house
        one = await loss.submit("searched")
        async with house.worker(loss.engine):
            await house.until(loss.engine, [one], Status.CONFIRMED)
            await house.until_told(1)
        await loss.keep_snapshot()
        await loss.publish(
            encode_cancellation(CancellationRequest(one.request_id, "searched", one.key, house.clock.now(), None, 1))
        )

        async def noted() -> bool:
            committed = await house.check(loss.engine).committed()
            return sum(committed.values()) == 2 and bool((await loss.rows())[one.request_id][-1])

        async with house.worker(loss.engine):
            await loss.until(noted)
        await loss.lose()
        down = False
        assert await house.check(loss.engine).lacking() == {"cancellations": 1}
        async with house.recovery(loss.engine) as recovery:
            assert (await recovery.run()).cancellations == 1
        assert await house.check(loss.engine).lacking() == {}
        async with house.worker(loss.engine):
            await house.until(loss.engine, [one], Status.CANCELLED)

    played(scene, backend, log, migrated_url, request)


@pytest.mark.parametrize("asked_again", [False, True])
@pytest.mark.parametrize("lost", ["the submission", "its cancellation"])
@slow_on("distributed")
def test_a_cancellation_that_was_refused_stays_so_unless_it_was_asked_for_again(
    lost: str,
    asked_again: bool,
    backend: Backend,
    log: Log,
    migrated_url: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer: CancelOutcome = Rejected(CANCELLATION_REFUSED.problem("No.", "rsv_1"))

    async def cancel(*_: object) -> CancelOutcome:
        return answer

    monkeypatch.setattr(restore.PmsOfAccount, "cancel", cancel)
    monkeypatch.setitem(restore.ACCOUNTS, "searched", replace(restore.ACCOUNTS["searched"], cancel=True))

    async def scene(loss: Loss) -> None:
        nonlocal answer
        house = loss.house

        async def ask(one: Submission, revision: int, status: CancellationStatus) -> None:
            asked = CancellationRequest(one.request_id, "searched", one.key, house.clock.now(), None, revision)
            await loss.publish(encode_cancellation(asked))

            async def is_so() -> bool:
                _, stored = await Overview(loss.engine).find(one.request_id) or (None, None)
                return stored is not None and stored.cancellation is not None and stored.cancellation.status is status

            await loss.until(is_so)

        if lost == "the submission":
            await loss.keep_snapshot()
        one = await loss.submit("searched")
        async with house.worker(loss.engine):
            await house.until(loss.engine, [one], Status.CONFIRMED)
            await house.until_told(1)
        if lost == "its cancellation":
            await loss.keep_snapshot()
        async with house.worker(loss.engine):
            await ask(one, 1, CancellationStatus.REFUSED)
            await house.until_told(2)
            answer = Deferred("pms_unavailable", "Down.")
            if asked_again:
                await ask(one, 2, CancellationStatus.REQUESTED)
        await loss.lose()
        answer = Cancelled()
        async with house.recovery(loss.engine) as recovery:
            await recovery.run()
        assert await house.check(loss.engine).lacking() == {}
        async with house.worker(loss.engine):
            if asked_again:
                await house.until(loss.engine, [one], Status.CANCELLED)
            else:
                await house.until(loss.engine, [await loss.submit("searched")], Status.CONFIRMED)
        _, stored = await Overview(loss.engine).find(one.request_id) or (None, None)
        assert stored is not None
        assert stored.cancellation is not None
        assert (stored.status, stored.cancellation.status) == (
            (Status.CANCELLED, CancellationStatus.DONE)
            if asked_again
            else (Status.CONFIRMED, CancellationStatus.REFUSED)
        )

    played(scene, backend, log, migrated_url, request)


@slow_on("distributed")
def test_what_is_confirmed_again_belongs_to_the_pms_that_its_account_had(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    """Else, once the account is moved, its cancellation would end a reservation of somebody else in another PMS."""

    async def scene(loss: Loss) -> None:
        await loss.keep_snapshot()
        one = await loss.submit("searched")
        async with loss.house.worker(loss.engine):
            await loss.house.until(loss.engine, [one], Status.CONFIRMED)
            await loss.house.until_told(1)
        await loss.lose()
        async with loss.house.recovery(loss.engine) as recovery:
            await recovery.run()
        asked = await Overview(loss.engine).asked_for(one.request_id)
        assert asked is not None
        assert asked.evidence.origin is not None

    played(scene, backend, log, migrated_url, request)


@slow_on("distributed")
def test_alike_submissions_that_each_had_an_outcome_stay_two(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    async def scene(loss: Loss) -> None:
        house, same = loss.house, NaturalKey("the same stay", window_seconds=1)
        await loss.keep_snapshot()
        first = await loss.submit("searched", natural=same, accepted_at=SystemClock().now() - timedelta(minutes=10))
        async with house.worker(loss.engine):
            await house.until(loss.engine, [first], Status.CONFIRMED)
            second = await loss.submit("searched", natural=same)
            await house.until(loss.engine, [second], Status.CONFIRMED)
            await house.until_told(2)
        await loss.lose()
        async with house.recovery(loss.engine) as recovery:
            done = await recovery.run()
        assert (done.missing, done.behind, done.without_request) == (2, 2, 0)
        rows = await loss.rows()
        assert [rows[each.request_id][0] for each in (first, second)] == ["CONFIRMED", "CONFIRMED"]
        assert {row[3] for row in rows.values()} == {"the same stay"}, "what is sent again is recognised"

    played(scene, backend, log, migrated_url, request)


async def taken_for_a_duplicate(loss: Loss) -> bool:
    return bool(await Database(loss.engine).read(select(duplicates.c.request_id)))


@slow_on("distributed")
@pytest.mark.parametrize("sent_again", ["before the outcome", "after the outcome"])
def test_a_repetition_of_a_lost_submission_with_an_outcome_is_not_made(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest, sent_again: str
) -> None:
    async def scene(loss: Loss) -> None:
        house = loss.house
        same = NaturalKey("the same stay", window_seconds=300, same="the same body", stay="the same stay")
        await loss.keep_snapshot()
        first = await loss.submit("searched", natural=same)
        again = partial(loss.submit, "searched", natural=same, reservation=first.reservation)  # in the same partition
        if sent_again == "before the outcome":
            await again()
        async with house.worker(loss.engine):
            await house.until_told(1)
            if sent_again == "after the outcome":
                await again()
            await loss.until(lambda: taken_for_a_duplicate(loss))
        await loss.lose()
        async with house.recovery(loss.engine) as recovery:
            assert (await recovery.run()).possibly_sent == 0
        assert [row[0] for row in (await loss.rows()).values()] == ["CONFIRMED"]
        async with house.worker(loss.engine):
            third = await loss.submit("searched", natural=replace(same, same="another body"))
            await house.until(loss.engine, [third], Status.CONFIRMED)
        assert house.pmss.made == Counter({first.request_id: 1, third.request_id: 1})

    played(scene, backend, log, migrated_url, request)


async def unanswered(loss: Loss, **fields: Any) -> Submission:
    """One that is made, and whose answer never comes."""
    loss.house.pmss.silent.set()
    one = await loss.submit("searched", **fields)

    async def made() -> bool:
        return one.request_id in loss.house.pmss.unanswered

    await loss.until(made)
    await loss.until_committed()
    return one


@slow_on("distributed")
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("answered", [True, False])
def test_a_stay_that_was_booked_again_while_its_cancellation_was_under_way_stays_booked_once(
    answered: bool,
    known: bool,
    backend: Backend,
    log: Log,
    migrated_url: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down = True

    async def cancel(*_: object) -> CancelOutcome:
        return Deferred("pms_unavailable", "Down.") if down else Cancelled()

    monkeypatch.setattr(restore.PmsOfAccount, "cancel", cancel)
    monkeypatch.setitem(restore.ACCOUNTS, "searched", replace(restore.ACCOUNTS["searched"], cancel=True))

    async def scene(loss: Loss) -> None:
        nonlocal down
        house, same = loss.house, NaturalKey("the same stay", window_seconds=300)
        if not known:
            await loss.keep_snapshot()
        first = await loss.submit("searched", natural=same)
        async with house.worker(loss.engine):
            await house.until(loss.engine, [first], Status.CONFIRMED)
            await house.until_told(1)
        if known:
            await loss.keep_snapshot()
        asked = CancellationRequest(first.request_id, "searched", first.key, house.clock.now(), None, 1)
        await loss.publish(encode_cancellation(asked))
        again = {"natural": same, "accepted_at": house.clock.now()}
        async with house.worker(loss.engine, replace(HOUSE_SETTINGS, grace_seconds=0.2)):
            if answered:
                second = await loss.submit("searched", **again)
                await house.until(loss.engine, [second], Status.CONFIRMED)
                await house.until_told(2)
            else:
                second = await unanswered(loss, **again)
        house.pmss.silent.clear()
        await loss.lose()
        down = False
        async with house.recovery(loss.engine) as recovery:
            done = await recovery.run()
        assert (done.missing, done.cancellations) == (1 if known else 2, 1)
        async with house.worker(loss.engine):
            await house.until(loss.engine, [first], Status.CANCELLED)
            await house.until(loss.engine, [second], Status.CONFIRMED)
        assert house.pmss.made == Counter({first.request_id: 1, second.request_id: 1})

    played(scene, backend, log, migrated_url, request)


@slow_on("distributed")
def test_what_repeated_a_replayed_submission_is_not_made(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    async def scene(loss: Loss) -> None:
        house, same = loss.house, NaturalKey("the same stay", window_seconds=300)
        first = await failed_then_replayed_and_lost(loss, "searched", again={"natural": same})
        async with house.recovery(loss.engine) as recovery:
            done = await recovery.run()
        assert (done.missing, done.replayed, done.possibly_sent) == (1, 1, 1)
        async with house.worker(loss.engine):
            await house.until(loss.engine, [first], Status.CONFIRMED)
        assert house.pmss.made == Counter({first.request_id: 1})

    played(scene, backend, log, migrated_url, request)


@pytest.mark.parametrize("written", [{"key": b"\xff"}, {"value": {"cancellation": "text"}}, {"value": {"status": []}}])
def test_a_result_that_no_worker_wrote_does_not_stop_it(written: Mapping[str, Any], log: Log, tmp_path: Path) -> None:
    example = result_messages()[0].example
    value = to_json({**from_json(example.value), **written.get("value", {})})
    message = replace(example, key=written.get("key", example.key), value=value)
    check = replace(House(log).check(open_engine(tmp_path / "unused.sqlite3")), vouches=lambda *_: True)
    assert check.outcomes([ConsumedMessage("results", 0, 0, 0, example)])
    assert check.outcomes([ConsumedMessage("results", 0, 1, 0, message)]) == []


@pytest.mark.slow
def test_it_takes_less_memory_than_what_was_lost(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    """Hours of a deployment's traffic are more than memory holds."""
    lost, notes = 2_000, "n" * 9_000

    async def scene(loss: Loss) -> None:
        house = loss.house
        await loss.keep_snapshot()
        for number in range(lost):
            one = fresh(number, account="searched", notes=notes)
            house.submitted.append(replace(one, request_id=house.ids.issue("searched", one.accepted_at)))
        await loss.publish(*map(message_of, house.submitted))

        async def all_told() -> bool:
            told = select(func.count()).where(reservations.c.status == "CONFIRMED")
            left = select(func.count()).select_from(outbox)
            database = Database(loss.engine)
            return (await database.read(told))[0][0] == lost and not (await database.read(left))[0][0]

        async with house.worker(loss.engine):
            await loss.until(all_told)
        await loss.lose()
        async with house.recovery(loss.engine) as recovery:
            tracemalloc.start()
            try:
                done = await recovery.run()
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert (done.missing, done.behind) == (lost, lost)
        assert most < 3 * lost * len(notes), "those in work are hundreds, whatever their number"

    played(scene, backend, log, migrated_url, request)


def test_a_full_temporary_directory_is_said_and_leaves_the_store_as_it_is(
    migrated_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    async def scene(loss: Loss) -> None:
        await lost_after_work(loss)
        before = await loss.rows()
        monkeypatch.setattr(topic_copy, "_SCHEMA", "PRAGMA max_page_count = 9;" + topic_copy._SCHEMA)  # noqa: SLF001
        async with loss.house.recovery(loss.engine) as recovery:
            with pytest.raises(Failed, match=r"disk is full\. Set TMPDIR"):
                await recovery.run()
            monkeypatch.undo()
            assert await loss.rows() == before
            assert (await recovery.run()).missing == 6

    played(scene, "embedded", EmbeddedLog(tmp_path / "log.sqlite3"), migrated_sqlite_url, request)


# --- alone --------------------------------------------------------------------------------------------------------------


async def lost_after_work(loss: Loss) -> None:
    """Some are confirmed, one waits, and one is unanswered when the store is lost; all since the snapshot."""
    house = loss.house
    await loss.keep_snapshot()
    async with house.worker(loss.engine, replace(HOUSE_SETTINGS, grace_seconds=0.2)):
        confirmed = await house.submit(1)
        await house.until(loss.engine, confirmed, Status.CONFIRMED)
        await house.until_told(len(confirmed))
        house.pmss.silent.set()
        unanswered = await house.submit(1)

        async def made() -> bool:
            return len(house.pmss.unanswered) == len(unanswered)

        await loss.until(made)
        await loss.until_committed()
    house.pmss.silent.clear()
    await loss.lose()


@slow_on("distributed")
def test_two_recoveries_do_not_run_at_once(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    async def scene(loss: Loss) -> None:
        await lost_after_work(loss)
        async with loss.house.recovery(loss.engine) as one, loss.house.recovery(loss.engine) as other:
            other.clock, one.clock, store = Impatient(2.0), Impatient(), Waiting(one.store)
            one.store = cast("StoreRecovery", store)
            running = asyncio.create_task(one.run())
            await store.reached.wait()
            with pytest.raises(LeasesInForce, match="another recovery"):
                await other.run()
            store.go_on.set()
            first = await running
            again = await other.run()
        assert (first.missing, first.possibly_sent) == (6, 3)
        assert (again.missing, again.possibly_sent) == (0, 3)
        async with loss.house.worker(loss.engine):
            certain = [each for each in loss.house.submitted if each.account_id != "blind"]
            await loss.house.until(loss.engine, certain, Status.CONFIRMED)
        assert set(loss.house.pmss.made.values()) == {1}

    played(scene, backend, log, migrated_url, request)


class Waiting:
    """The store of a recovery, which waits in the middle."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def restore(self, *arguments: Any) -> int:
        self.reached.set()
        await self.go_on.wait()
        restored: int = await self._store.restore(*arguments)
        return restored


class Killed(BaseException):
    """The process is gone."""


class Dying:
    """Calls of a part, which come to an end with the call that `left` counts down to."""

    def __init__(self, part: Any, left: list[int]) -> None:
        self._part = part
        self._left = left

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] <= 0:
                raise Killed
            return await found(*arguments, **named)

        return call


@asynccontextmanager
async def dying(house: House, engine: Engine, left: list[int]) -> AsyncIterator[Recovery]:
    async with house.recovery(engine) as recovery:
        # To be killed between any two steps.
        recovery.recorder = cast("Recorder", Dying(recovery.recorder, left))
        recovery.store = cast("StoreRecovery", Dying(recovery.store, left))
        recovery.publisher = Dying(recovery.publisher, left)
        yield recovery


@pytest.mark.parametrize("stride", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_between_any_two_steps_it_comes_to_the_same_when_it_is_run_again(
    stride: int, backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    if backend == "distributed":
        pytest.skip("each step has a copy of the store: of a file")

    async def scene(loss: Loss) -> None:
        house = loss.house
        await lost_after_work(loss)
        start = Path(str(loss.engine.url.database))
        await loss.engine.dispose()
        outcomes = []
        for steps in (10_000, *range(1, 200, stride)):
            own = start.with_name(f"killed-{steps}.sqlite3")
            shutil.copyfile(start, own)  # nobody has it open: all of it is in the file
            loss.engine = open_engine(f"sqlite+aiosqlite:///{own}")
            left = [steps]
            try:
                async with dying(house, loss.engine, left) as recovery:
                    await recovery.run()
            except Killed:
                async with house.recovery(loss.engine) as again:
                    again.clock = Impatient()
                    await again.run()
            outcomes.append(await loss.rows())
            assert await house.check(loss.engine).lacking() == {}
            await loss.engine.dispose()
            if steps < 10_000 and left[0] > 0:
                break
        assert len(outcomes) > 15 // stride
        assert all(each == outcomes[0] for each in outcomes)
        assert sum(row[2] for row in outcomes[0].values()) == 3, "the unanswered are possibly sent"

    played(scene, backend, log, migrated_url, request)


def test_killed_after_an_outcome_it_still_knows_the_repeats_of_that_submission_when_it_is_run_again(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    if backend == "distributed":
        pytest.skip("each step has a copy of the store: of a file")

    async def scene(loss: Loss) -> None:
        house, same = loss.house, NaturalKey("the same stay", window_seconds=300)
        await loss.keep_snapshot()
        first = await loss.submit("searched", natural=same)
        async with house.worker(loss.engine):
            await house.until_told(1)
            await loss.submit("searched", natural=same, reservation=first.reservation)
            await loss.until(lambda: taken_for_a_duplicate(loss))
        await loss.lose()
        start = Path(str(loss.engine.url.database))
        await loss.engine.dispose()
        for steps in range(1, 100):
            own = start.with_name(f"killed-{steps}.sqlite3")
            shutil.copyfile(start, own)
            loss.engine = open_engine(f"sqlite+aiosqlite:///{own}")
            left = [steps]
            with suppress(Killed):
                async with house.recovery(loss.engine) as recovery:
                    recovery.store = cast("StoreRecovery", Dying(recovery.store, left))
                    await recovery.run()
            async with house.recovery(loss.engine) as again:
                again.clock = Impatient()
                await again.run()
            rows = await loss.rows()
            await loss.engine.dispose()
            assert {each: row[3] for each, row in rows.items()} == {first.request_id: "the same stay"}, f"step {steps}"
            if left[0] > 0:
                break

    played(scene, backend, log, migrated_url, request)


class Impatient(SystemClock):
    """Does not wait for the lease of the dead one to run out."""

    def __init__(self, most: float = 0.2) -> None:
        self._most = most

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, self._most))


@slow_on("distributed")
def test_no_worker_starts_while_a_recovery_is_unfinished(
    backend: Backend, log: Log, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    async def scene(loss: Loss) -> None:
        house = loss.house
        await lost_after_work(loss)
        async with dying(house, loss.engine, [12]) as recovery:
            with pytest.raises(Killed):
                await recovery.run()
        made = dict(house.pmss.made)
        async with house.worker(loss.engine) as worker:
            await asyncio.sleep(1.0)  # nothing tells that it waits
            assert (worker.in_step, worker.consuming(), dict(house.pmss.made)) == (False, False, made)
        async with house.recovery(loss.engine) as again:
            again.clock = Impatient()
            await again.run()
        async with house.worker(loss.engine):
            certain = [each for each in house.submitted if each.account_id != "blind"]
            await house.until(loss.engine, certain, Status.CONFIRMED)
            assert (await Overview(loss.engine).statuses([certain[0].request_id]))[certain[0].request_id]
        assert set(house.pmss.made.values()) == {1}

    played(scene, backend, log, migrated_url, request)
