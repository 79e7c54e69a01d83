"""The matrix of faults: at every place where faults are contained, the real component raises for one of ten units while the other
nine go through, or in a round of its loop. One table of cases; a member of `Where` without a case fails.

`tests/stage/process/test_containment.py` tries every class of exception at every position with the primitives alone.
"""

import asyncio
import inspect
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import select
from structlog.testing import capture_logs

import forwarder.assembly.ingress as assembly_ingress
import forwarder.assembly.role as assembly_role
import forwarder.housekeeping.service as housekeeping_backlog
import forwarder.store.submissions.leases as store_leases
from forwarder.console.service import Recent
from forwarder.housekeeping.service import BacklogMetrics, RetentionSweeper, keep_house
from forwarder.http.health import Health
from forwarder.notifier import posting
from forwarder.notifier import service as notifier_service
from forwarder.notifier.posting import NotifierParts, NotifierSettings
from forwarder.notifier.service import Notifier
from forwarder.notifier.webhooks import Webhooks
from forwarder.operate.deployment import recovery as recover
from forwarder.oversight.backlog import Group
from forwarder.oversight.restored import RecoveryCheck
from forwarder.pms.port import Capabilities
from forwarder.process.clock import SystemClock
from forwarder.process.loops import LOOPS, Where, cancel_all, forever
from forwarder.process.shares import SharedBucket
from forwarder.reservation.request import CardDetails
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.deployment import ProcessRegister, SqlLender
from forwarder.store.engine import Engine
from forwarder.store.retention import GuestStore, Purger
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import StoreRecovery
from forwarder.store.tables import outbox, reservations
from forwarder.tenancy.access import KeyUses, RateLimits, exchange_usage, write_uses
from forwarder.tenancy.port import RateLimit, RetentionPolicy
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.directory import SqlKeyUses, SqlUsage
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.topics import outcomes as topics_outcomes
from forwarder.topics.embedded.log import EmbeddedLog, EmbeddedWriter
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import ConsumedMessage, LogGap, Message
from forwarder.worker import intake, service
from forwarder.worker.dispatch.dispatcher import Dispatcher
from forwarder.worker.dispatch.rate_loans import BorrowedTokens, Loans
from forwarder.worker.outcome import recorder as publishing
from forwarder.worker.push import pipeline
from forwarder.worker.service import Worker
from tests.support.log.messages import ignore_partitions
from tests.support.log.signers import TRUSTING
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.log import MemoryLog
from tests.support.memory.webhooks import MemorySender, public_targets
from tests.support.profile import some
from tests.support.sealing import keyring_of
from tests.support.store.audited import audit_on
from tests.support.store.engines import sqlite_engine
from tests.support.worker.worker_bench import (
    PATIENCE_SECONDS,
    TOPICS,
    Accounts,
    Bench,
    Pms,
    Skipping,
    cancellation,
    fresh,
    message_of,
    open_bench,
)
from tools.contracts.examples import WORKSPACE_ID
from tools.contracts.messages import result_messages


class OfADriver(sqlite3.Error):
    """Of no class that the store knows."""


ERRORS: Final[tuple[Callable[[], BaseException], ...]] = (
    ValueError,
    RecursionError,
    MemoryError,
    lambda: UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    KeyError,
    OverflowError,
    AssertionError,
    OfADriver,
    lambda: ExceptionGroup("several", [ValueError("of a guest")]),
    asyncio.CancelledError,  # by a library: nobody cancelled the task
    StopAsyncIteration,
)
EVERY = range(1, 11)
TURNS: Final = some(range(2), 2)
"""Each turn has other errors at other positions."""
CARD = CardDetails(cardNumber="4111111111111111", cardHolderName="Ada", expiryMonth="12", expiryYear="2031", cvv="123")
_turns = count()


@pytest.fixture
async def bench(data_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(data_dir) as opened:
        with capture_logs():  # tracebacks in colour take longer than the tests
            yield opened
    assert LOOPS.failing() == []


def count_of(where: Where) -> float:
    return REGISTRY.get_sample_value("forwarder_contained_faults_total", {"where": where.value}) or 0.0


async def until(met: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await met():
            await asyncio.sleep(0.03)


@dataclass
class Injected:
    """A real function that raises for what it hits. `calls` and `raised` so far."""

    owner: Any
    name: str
    hits: Callable[["Injected", Any], bool]
    error: Callable[[], BaseException]
    calls: int = 0
    raised: int = 0

    def into(self, monkeypatch: pytest.MonkeyPatch) -> "Injected":
        real = getattr(self.owner, self.name)

        async def at_an_await(*given: Any, **named: Any) -> Any:
            if self._hit((given, named)):
                await asyncio.sleep(0)
                raise self.error()
            return await real(*given, **named)

        def at_once(*given: Any, **named: Any) -> Any:
            if self._hit((given, named)):
                raise self.error()
            return real(*given, **named)

        wrapped = at_an_await if inspect.iscoroutinefunction(real) else at_once
        monkeypatch.setattr(self.owner, self.name, wrapped)
        return self

    def _hit(self, given: Any) -> bool:
        self.calls += 1
        hit = self.hits(self, given)
        self.raised += hit
        return hit


# --- one of ten rows, messages, events -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """A whole worker, of whose ten units one raises at `owner.name`. `flow` brings the ten through and returns once the tenth is
    shown."""

    where: Where
    owner: Any
    name: str
    flow: Callable[[Bench, int], Awaitable[None]]
    counted: Where | None = None
    by_row: bool = False
    """The row's id names it, not its request id."""


def _id(number: int) -> str:
    return f"rsv_{number:032d}"


def _names(position: int, given: Any) -> bool:
    return _id(position) in str(given)


def _has_row(position: int, given: Any) -> bool:
    return any(position in each for each in given[0] if isinstance(each, list | tuple))


async def _row(bench: Bench, number: int) -> Any:
    async with bench.engine.connect() as connection:
        return (await connection.execute(select(reservations).where(reservations.c.request_id == _id(number)))).one()


async def _set_aside_as_a_letter(bench: Bench, number: int) -> None:
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker() as worker:
        await bench.rows("CONFIRMED", 9)
        [letter] = await bench.read(TOPICS.dead_letters, 1)
        assert worker.consuming()
    assert _id(number).encode() in letter.message.value


async def _cancelled(bench: Bench, number: int) -> None:
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 10)
        await bench.cancel(*map(cancellation, EVERY))
        await bench.rows("CANCELLED", 9)
        [letter] = await bench.read(TOPICS.dead_letters, 1)
    assert _id(number).encode() in letter.message.value


async def _conflicting(bench: Bench, number: int) -> None:
    """The same ids again, with other bodies: nine callers hear of that, and one message is set aside."""
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 10)
        await bench.submit(*(replace(fresh(each, notes="other"), fingerprint="f" * 32) for each in EVERY))
        [letter] = await bench.read(TOPICS.dead_letters, 1)
        await bench.read(TOPICS.results, 19)
    assert _id(number).encode() in letter.message.value


async def _letters(bench: Bench, number: int) -> None:
    """Ten that cannot be read, and a letter that the log does not take: it says where its message is."""
    await bench.publisher.publish(TOPICS.requests, [Message(b"k", f"no JSON {_id(each)}".encode()) for each in EVERY])
    async with bench.worker():
        letters = await bench.read(TOPICS.dead_letters, 10)
    assert sorted(_id(number).encode() in each.message.value for each in letters) == [False] * 10
    assert [each.message.value for each in letters].count(b"") == 1


async def _tried(bench: Bench, number: int) -> None:
    await bench.submit(*map(fresh, EVERY))
    await _nine_confirmed(bench, number)


async def _nine_confirmed(bench: Bench, number: int) -> None:
    async def told() -> bool:
        attempts = (await _row(bench, number)).attempts
        return "internal_error" in attempts or "adapter_failed" in attempts

    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
        await until(told)


async def _intended(bench: Bench, number: int) -> None:
    bench.pms.capabilities = Capabilities(idempotent_create=False, find_by_reference=False, cancel=True)
    await bench.submit(*map(fresh, EVERY))

    async def told() -> bool:
        async with bench.engine.connect() as connection:
            found = select(reservations.c.attempts).where(reservations.c.id == number)
            return "internal_error" in (await connection.scalar(found) or "")

    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
        await until(told)


async def _carded(bench: Bench, number: int) -> None:
    key, account = bench.sealing_key, bench.accounts.one
    await bench.submit(
        *(replace(fresh(each), card=key.sealed(CARD, _id(each), account.id, account.base_url)) for each in EVERY)
    )
    await _nine_confirmed(bench, number)


async def _in_doubt(bench: Bench, number: int) -> None:
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
        [row] = await bench.rows("IN_DOUBT", 1)
    assert row.request_id == _id(number)


async def _kept_in_outbox(bench: Bench, number: int) -> None:
    async def kept() -> bool:
        async with bench.engine.connect() as connection:
            rows = (await connection.execute(select(outbox))).all()
        return [row.request_id for row in rows if row.faults] == [_id(number)] == [row.request_id for row in rows]

    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.read(TOPICS.results, 9)
        await until(kept)


async def _ended(bench: Bench, number: int) -> None:
    bench.accounts.one = replace(bench.accounts.one, paused=True, deadline_seconds=1)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("FAILED", 10)


async def _resting(bench: Bench, number: int) -> None:
    bench.accounts.one = replace(bench.accounts.one, paused=True)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.rows("PENDING", 10)
    bench.accounts.one = replace(bench.accounts.one, paused=False)
    await _nine_confirmed(bench, number)


UNITS: Final = (
    Unit(Where.INTAKE, intake, "decode_with_text", _set_aside_as_a_letter),
    Unit(Where.INTAKE, Recorder, "ingest", _set_aside_as_a_letter),
    Unit(Where.INTAKE, intake, "replay_revision", _set_aside_as_a_letter),
    Unit(Where.CANCELLATIONS, intake, "CancellationArrival", _cancelled, counted=Where.INTAKE),
    Unit(Where.CANCELLATIONS, Recorder, "request_cancellations", _cancelled, counted=Where.INTAKE),
    Unit(Where.CONFLICTS, intake, "encode_conflict", _conflicting, counted=Where.INTAKE),
    Unit(Where.DEAD_LETTERS, EmbeddedWriter, "publish", _letters),
    Unit(Where.ADAPTER, Pms, "create", _tried),
    Unit(Where.PUSH, pipeline, "apply_rules", _tried),
    Unit(Where.PUSH, pipeline, "decide", _tried),
    Unit(Where.INTENTS, Recorder, "mark_pushing", _intended, by_row=True),
    Unit(Where.CARD_KEYS, CardKeys, "take", _carded),
    Unit(Where.OUTCOMES, Recorder, "record", _in_doubt),
    Unit(Where.OUTBOX, publishing, "encode_result", _kept_in_outbox),
    Unit(Where.DEADLINES, service, "decide", _ended),
    Unit(Where.SWEEP, store_leases, "work_of", _resting),
)


def _hits_unit(case: Unit, position: int) -> Callable[[Injected, Any], bool]:
    def hits(_injected: Injected, given: Any) -> bool:
        if case.where is Where.DEAD_LETTERS:
            _, topic, messages = given[0]
            return topic == TOPICS.dead_letters and any(_names(position, each.value.decode()) for each in messages)
        if case.where is Where.OUTCOMES:
            return any(each.event.request_id == _id(position) and each.pms_reservation_id for each in given[0][2])
        if case.where is Where.SWEEP:
            return bool(given[0][0].request_id == _id(position))
        return (_has_row if case.by_row else _names)(position, given)

    return hits


@pytest.mark.parametrize("case", UNITS, ids=lambda case: f"{case.where}-{case.name}")
@pytest.mark.parametrize("turn", TURNS)
async def test_of_ten_units_nine_succeed_and_the_tenth_is_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, case: Unit, turn: int
) -> None:
    row = UNITS.index(case) + turn * 4
    position, error = row % 10 + 1, ERRORS[row % len(ERRORS)]
    injected = Injected(case.owner, case.name, _hits_unit(case, position), error).into(monkeypatch)
    counted = case.counted or case.where
    before = count_of(counted)
    await case.flow(bench, position)
    assert injected.raised
    assert count_of(counted) > before


# --- rounds of a worker's loops --------------------------------------------------------------------------------------------


def _twice_in_the_loop(where: Where, name: str) -> Callable[[Injected, Any], bool]:
    """The first two calls by the loop's task. Of its pauses each second: the one after a fault is none of its step."""
    calls, every = count(), 2 if name == "sleep" else 1

    def hits(injected: Injected, _given: Any) -> bool:
        task = asyncio.current_task()
        mine = task is not None and task.get_name() == where
        return mine and injected.raised < 2 and next(calls) % every == 0

    return hits


class _Nothing:
    """What nobody asks in these tests."""

    async def accounts(self, **_: Any) -> list[Any]:
        return []

    async def failed(self) -> list[Any]:
        return []

    async def endpoints(self) -> list[Any]:
        return []

    async def set_aside(self) -> list[Any]:
        return []

    async def size(self) -> int:
        return 0

    async def keys_ending(self, **_: Any) -> int:
        return 0


class _Policies:
    """Ten workspaces that keep guests' data for a day."""

    async def policies(self) -> list[RetentionPolicy]:
        return [RetentionPolicy(_id(number), 1) for number in EVERY]

    async def account_workspaces(self) -> dict[str, str]:
        return {}

    async def endpoint_workspaces(self) -> dict[str, str]:
        return {}


async def _no_loss(_looked_at: int = 0) -> dict[str, int]:
    return {}


class _NoTopicLosses:
    async def move_unowned(self) -> None:
        pass

    async def in_words(self) -> dict[str, str]:
        return {}

    async def cut_back(self, _partitions: Collection[int]) -> Sequence[LogGap]:
        return ()

    async def note(self, gap: LogGap) -> None:
        raise AssertionError(gap)


_PAUSING: Final = (
    Where.TOPIC,
    Where.INTAKE_WATCH,
    Where.SWEEP,
    Where.DEADLINES,
    Where.CARDS,
    Where.REPUBLISH,
    Where.BREAKERS,
    Where.LEASE,
)
LOOP_SITES: Final[tuple[tuple[Where, Any, str], ...]] = (
    *((where, Skipping, "sleep") for where in _PAUSING),
    (Where.LEASE, Recorder, "renew"),
    (Where.SWEEP, Recorder, "heartbeats"),
    (Where.SWEEP, Recorder, "take_over"),
    (Where.SWEEP, Recorder, "accounts_due"),
    (Where.REFILL, Dispatcher, "running_low"),
    (Where.DEADLINES, Recorder, "claim_expired"),
    (Where.REPUBLISH, Recorder, "republish"),
    (Where.CARDS, CardKeys, "sweep"),
    (Where.CARDS, CardKeys, "sealing_keys"),
    (Where.INTAKE, Worker, "_on_partitions"),
    (Where.STORE, Skipping, "sleep"),
    (Where.STORE, Recorder, "observe"),
)  # fmt: skip


def _once_each(sites: Sequence[tuple[Where, Any, str]]) -> list[Any]:
    """For a change, the last of each place."""
    last = {where: index for index, (where, *_) in enumerate(sites)}
    return [
        pytest.param(site, marks=() if index == last[site[0]] else pytest.mark.slow, id=f"{site[0]}-{site[2]}")
        for index, site in enumerate(sites)
    ]


@pytest.mark.parametrize("site", _once_each(LOOP_SITES))
async def test_a_round_of_a_loop_that_raises_costs_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, site: tuple[Where, Any, str]
) -> None:
    where, owner, name = site
    error = ERRORS[LOOP_SITES.index(site) % len(ERRORS)]
    injected = Injected(owner, name, _twice_in_the_loop(where, name), error).into(monkeypatch)
    bench.settings = replace(bench.settings, lease_seconds=0.9)
    before = count_of(where)
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker(topic_losses=_NoTopicLosses(), lacking=_no_loss) as worker:

        async def alive() -> bool:
            worker._dispatcher.refill_wanted.set()  # noqa: SLF001
            return injected.raised == 2 and injected.calls > 2 and worker.consuming()

        await bench.rows("CONFIRMED", 10)
        await until(alive)
        assert count_of(where) > before


class _Swept(GuestStore):
    """The store as the sweeper sees it, without webhooks."""

    async def endpoints_with_deliveries(self) -> list[str]:
        return []


# --- what is not a worker's ------------------------------------------------------------------------------------------------


@dataclass
class Ten:
    """What the other places' cases work with. `error` is raised for the unit `number`, or in two rounds."""

    engine: Engine
    directory: Path
    monkeypatch: pytest.MonkeyPatch
    error: Callable[[], BaseException]
    number: int = 4

    def inject(self, owner: Any, name: str, hits: Callable[[Injected, Any], bool] | None = None) -> Injected:
        twice = hits or (lambda injected, _given: injected.raised < 2)
        return Injected(owner, name, twice, self.error).into(self.monkeypatch)

    def one(self, owner: Any, name: str) -> Injected:
        return self.inject(owner, name, lambda _injected, given: _names(self.number, given))


async def _rounds(running: Awaitable[None], clock: ManualClock, met: Callable[[], object]) -> None:
    task = asyncio.ensure_future(running)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not met():
            await asyncio.sleep(0.005)
            await clock.advance(30.0)
            assert not task.done()
    await cancel_all([task])


async def _retention(ten: Ten) -> None:
    injected, swept = ten.one(GuestStore, "anonymize_finished"), set[str]()
    real = GuestStore.anonymize_finished

    async def noted(self: GuestStore, workspace_id: str, *given: Any, **named: Any) -> int:
        done = await real(self, workspace_id, *given, **named)
        swept.add(workspace_id)
        return done

    ten.monkeypatch.setattr(GuestStore, "anonymize_finished", noted)
    await RetentionSweeper(_Swept(ten.engine), _Policies(), ManualClock()).sweep()  # type: ignore[arg-type]
    assert (len(swept), injected.raised) == (9, 1)


def _housekeeping(owner: Any, name: str) -> Callable[[Ten], Awaitable[None]]:
    async def case(ten: Ten) -> None:
        injected, clock, nothing = ten.inject(owner, name), ManualClock(), _Nothing()
        log = EmbeddedLog(ten.directory / "log.sqlite3", partitions=1, clock=clock)
        groups = {"worker": Group("workers", TOPICS.requests)}
        backlog = BacklogMetrics(nothing, nothing, log, clock, groups, 10)  # type: ignore[arg-type]
        sweeper = RetentionSweeper(_Swept(ten.engine), _Policies(), clock)  # type: ignore[arg-type]
        async with log.admin():
            running = keep_house(backlog, sweeper, clock, asyncio.Event())
            await _rounds(running, clock, lambda: injected.raised == 2 and injected.calls > 2)

    return case


async def _rate_loans(ten: Ten) -> None:
    injected, clock, lent = ten.inject(SqlLender, "lend"), ManualClock(), list[str]()
    loans = Loans(SqlLender(ten.engine), clock)
    loans.on_lent = lent.append
    tokens = BorrowedTokens("acc", [SharedBucket("acc#own", 10.0, 10.0)], 1, loans)

    def met() -> bool:
        if not lent:
            tokens.want(1, 1)
        return injected.raised == 2 and lent == ["acc"]

    await _rounds(forever(loans.exchange, name=Where.RATE_LOANS, clock=clock, outages=(StoreUnavailable,)), clock, met)


async def _rate_limits(ten: Ten) -> None:
    injected, clock = ten.inject(SqlUsage, "add"), ManualClock()
    limits, usage = RateLimits(clock, RateLimit(10, 60)), SqlUsage(ten.engine)

    def met() -> bool:
        for number in EVERY:
            limits.take(_id(number), None)
        return injected.calls > injected.raised == 2

    await _rounds(exchange_usage(limits, usage, clock), clock, met)


async def _key_uses(ten: Ten) -> None:
    injected, clock, uses = ten.inject(SqlKeyUses, "used"), ManualClock(), KeyUses()
    for number in EVERY:
        uses.add(_id(number))
    running = write_uses(uses, SqlKeyUses(ten.engine), clock)

    def met() -> bool:
        return injected.calls > injected.raised == 2

    await _rounds(running, clock, met)


async def _sealing_keys(ten: Ten) -> None:
    clock = ManualClock()
    backend: Any = SimpleNamespace(clock=clock, engine=ten.engine, trusted_keys=lambda: None)
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        await assembly_ingress.open_card_sealer(stack, backend, stop)
        injected = ten.inject(assembly_ingress, "load_sealing_keys")
        await _rounds(stop.wait(), clock, lambda: injected.calls > injected.raised == 2)  # type: ignore[arg-type]
        stop.set()


async def _register(ten: Ten) -> None:
    injected, clock, stop = ten.inject(ProcessRegister, "report"), ManualClock(), asyncio.Event()
    settings = SimpleNamespace(environment=SimpleNamespace(revision="1"))
    backend: Any = SimpleNamespace(clock=clock, engine=ten.engine, settings=settings)
    async with assembly_role.telling_of_itself("query", backend, stop, lambda: (), Health()):
        await _rounds(stop.wait(), clock, lambda: injected.calls > injected.raised == 2)  # type: ignore[arg-type]
        stop.set()


async def _console(ten: Ten) -> None:
    """A refresh that raises; whoever comes next reads it anew."""
    clock, tries = ManualClock(), count(1)

    async def read() -> int:
        number = next(tries)
        if number == 2:
            raise ten.error()
        return number

    recent = Recent(read, clock)
    assert await recent.get() == 1
    await clock.advance(10.0)
    assert await recent.get() == 1
    await settle()
    assert await recent.get() == 3


# --- the notifier, those who wait, recovery --------------------------------------------------------------------------------


async def _notified(ten: Ten, injected: Injected, met: Callable[[list[str]], object]) -> None:
    """A notifier on the embedded log and store, with ten events for one endpoint; `met` by the event ids that were posted."""
    log, clock, sender = EmbeddedLog(ten.directory / "log.sqlite3"), SystemClock(), MemorySender()
    endpoints, url = Endpoints(ten.engine), "https://hook.example/"
    await TenancyAdmin(ten.engine).add_workspace(WORKSPACE_ID)
    hooks = Webhooks(
        endpoints,
        Deliveries(ten.engine),
        keyring_of("a secret"),
        public_targets(),
        clock,
        audit_on(ten.engine, clock),
    )
    await hooks.add(WORKSPACE_ID, url)
    settings = NotifierSettings(sweep_seconds=0.05, intake_wait_seconds=0.05, grace_seconds=5, max_backoff_seconds=0.1)
    queue, unsealer, stop = Deliveries(ten.engine), keyring_of("a secret"), asyncio.Event()
    async with log.admin() as admin, log.publisher() as publisher:
        await admin.create(dict.fromkeys(TOPICS.all(), 1))
        parts = NotifierParts(log, TOPICS, queue, endpoints, unsealer, sender, clock, settings)
        running = asyncio.create_task(Notifier(parts).run(stop))
        await publisher.publish(TOPICS.results, [_event(number) for number in EVERY])

        async def done() -> object:
            return injected.raised and met(sender.to(url))

        await until(done)
        assert not running.done()
        stop.set()
        await running


def _event(number: int) -> Message:
    example = result_messages()[0].example
    changed = {"ce_subject": _id(number).encode(), "ce_id": f"{_id(number)}.1".encode()}
    return Message(
        example.key, example.value, tuple((name, changed.get(name, value)) for name, value in example.headers)
    )


def _nine_of(number: int) -> Callable[[list[str]], object]:
    """Nine are posted; of the one, nobody is sent it, or it is posted once more."""
    return lambda posted: {f"{_id(each)}.1" for each in EVERY if each != number} <= set(posted)


def _all(posted: list[str]) -> bool:
    return {f"{_id(each)}.1" for each in EVERY} <= set(posted)


def _webhooks(
    owner: Any, name: str, *, one: bool = False, task: Where | None = None
) -> Callable[[Ten], Awaitable[None]]:
    async def case(ten: Ten) -> None:
        if task is not None:
            injected = ten.inject(owner, name, _twice_in_the_loop(task, name))
        else:
            injected = ten.one(owner, name) if one else ten.inject(owner, name)
        await _notified(ten, injected, _nine_of(ten.number) if one else _all)

    return case


async def _waiters(ten: Ten) -> None:
    clock = ManualClock()
    log = MemoryLog(clock)
    listener = OutcomeListener(log.tail("results"), clock)
    ten.inject(
        topics_outcomes,
        "_decode",
        lambda _injected, given: dict(given[0][0].headers)["ce_subject"] == _id(ten.number).encode(),
    )
    heard: list[int] = []

    async def wait_for(number: int) -> None:
        async with listener.expecting(_id(number)) as waiter:
            assert waiter is not None
            await log.publish("results", [_event(number)])
            if await waiter.within(60.0, asyncio.Event().wait) is not None:  # type: ignore[arg-type]
                heard.append(number)

    running = asyncio.create_task(listener.run())
    await settle()
    waiting = [asyncio.create_task(wait_for(number)) for number in EVERY]
    for _ in range(70):
        await settle()
        await clock.advance(1.0)
    await asyncio.gather(*waiting)
    assert not running.done()
    await cancel_all([running])
    assert sorted(heard) == [number for number in EVERY if number != ten.number]


async def _recovery(ten: Ten) -> None:
    """Ten that the store lost, one of which cannot be ingested: it is left out, and the log tells of it."""
    injected = ten.one(Recorder, "ingest")
    log, clock = EmbeddedLog(ten.directory / "log.sqlite3", partitions=2), SystemClock()
    async with log.publisher() as publisher:
        await publisher.publish(TOPICS.requests, [message_of(fresh(number)) for number in EVERY])
        async with log.consumer(TOPICS.requests, group="workers", on_partitions=ignore_partitions) as consumer:
            received: list[ConsumedMessage] = []
            while len(received) < len(EVERY):
                received += await consumer.receive(max_messages=100, wait_seconds=1.0)
            await consumer.commit(received)
        check = RecoveryCheck(
            log,
            TOPICS,
            "workers",
            known=CardKeys(ten.engine).known,
            store=StoreRecovery(ten.engine),
            vouches=lambda _request_id, _account_id: True,
            purged_before=Purger(ten.engine).purged_before,
            signer=TRUSTING,
        )
        recovery = recover.Recovery(
            log=log,
            topics=TOPICS,
            publisher=publisher,
            recorder=Recorder(ten.engine),
            store=StoreRecovery(ten.engine),
            directory=Accounts(),
            check=check,
            target=lambda _account: "",
            audit=audit_on(ten.engine, clock),
            clock=clock,
        )
        await recovery.run()
    async with ten.engine.connect() as connection:
        kept = {row.request_id for row in await connection.execute(select(reservations.c.request_id))}
    assert kept == {_id(number) for number in EVERY if number != ten.number}
    assert injected.raised


ELSEWHERE: Final[tuple[tuple[Where, Callable[[Ten], Awaitable[None]]], ...]] = (
    (Where.RETENTION, _retention),
    (Where.RETENTION, _housekeeping(RetentionSweeper, "sweep")),
    (Where.STANDING, _housekeeping(_Nothing, "accounts")),
    (Where.STANDING_LAG, _housekeeping(housekeeping_backlog, "read_lag")),
    (Where.RATE_LIMITS, _rate_limits),
    (Where.RATE_LOANS, _rate_loans),
    (Where.KEY_USES, _key_uses),
    (Where.SEALING_KEYS, _sealing_keys),
    (Where.REGISTER, _register),
    (Where.CONSOLE, _console),
    (Where.WAITERS, _waiters),
    (Where.WEBHOOK_EVENTS, _webhooks(Endpoints, "any_enabled", task=Where.WEBHOOK_EVENTS)),
    (Where.WEBHOOK_SWEEP, _webhooks(Deliveries, "endpoints_due")),
    (Where.WEBHOOK_INTAKE, _webhooks(notifier_service, "decode_event", one=True)),
    (Where.WEBHOOK_INTAKE, _webhooks(Deliveries, "queue", one=True)),
    (Where.WEBHOOK_POST, _webhooks(posting, "signed_headers", one=True)),
    (Where.WEBHOOK_POST, _webhooks(MemorySender, "post", one=True)),
    (Where.WEBHOOK_RECORDS, _webhooks(Deliveries, "record", one=True)),
    (Where.WEBHOOK_ENDPOINT, _webhooks(Deliveries, "claim")),
    (Where.RECOVERY, _recovery),
)


@pytest.mark.parametrize("case", ELSEWHERE, ids=lambda case: str(case[0]))
@pytest.mark.parametrize("turn", TURNS)
async def test_other_places(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[Where, Callable[[Ten], Awaitable[None]]], turn: int
) -> None:
    where, run = case
    row = ELSEWHERE.index(case) + 3 * turn
    before = count_of(where)
    async with sqlite_engine(data_dir / "store.sqlite3") as engine:
        with capture_logs():
            await run(Ten(engine, data_dir, monkeypatch, ERRORS[row % len(ERRORS)], row % 10 + 1))
    assert count_of(where) > before
    assert LOOPS.failing() == []


# --- rounds that have no pause of their own --------------------------------------------------------------------------------


async def test_the_check_after_a_restore_is_made_until_it_goes_through(bench: Bench) -> None:
    tries = count()

    async def lacking(_looked_at: int = 0) -> dict[str, int]:
        number = next(tries)
        if number < len(ERRORS):
            error = ERRORS[number]()
            raise error
        return {}

    before = count_of(Where.RECOVERY_CHECK)
    bench.clock.sleep = _at_once  # type: ignore[assignment, method-assign]
    await bench.submit(*map(fresh, EVERY))
    async with bench.worker(lacking=lacking):
        await bench.rows("CONFIRMED", 10)
    assert count_of(Where.RECOVERY_CHECK) == before + len(ERRORS)


async def test_a_worker_that_stops_before_that_check_went_through_fails_no_more(bench: Bench) -> None:
    async def lacking(_looked_at: int = 0) -> dict[str, int]:
        raise ValueError

    async def not_ready() -> bool:
        return LOOPS.failing() == [Where.RECOVERY_CHECK]

    bench.clock.sleep = _at_once  # type: ignore[assignment, method-assign]
    async with bench.worker(lacking=lacking):
        await until(not_ready)
    assert LOOPS.failing() == []


async def _at_once(_seconds: float) -> None:
    await asyncio.sleep(0.005)


async def test_events_that_cannot_be_deleted_are_published_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    before = count_of(Where.PUBLISHED)

    def of_one(_injected: Injected, given: Any) -> bool:
        return _has_row(5, given) and count_of(Where.PUBLISHED) == before

    injected = Injected(Recorder, "published", of_one, ValueError).into(monkeypatch)

    async def emptied() -> bool:
        async with bench.engine.connect() as connection:
            return not (await connection.execute(select(outbox))).all()

    await bench.submit(*map(fresh, EVERY))
    async with bench.worker():
        await bench.read(TOPICS.results, 10)
        await until(emptied)
    assert injected.raised
    assert count_of(Where.PUBLISHED) > before


async def test_an_account_that_cannot_be_configured_holds_up_no_other(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_one(_injected: Injected, given: Any) -> bool:
        return bool(given[0][1].id == "acc-3")

    for number in EVERY:
        bench.accounts.add(f"acc-{number}")
    before = count_of(Where.ACCOUNT)
    Injected(Dispatcher, "configure", of_one, KeyError).into(monkeypatch)
    await bench.submit(*(fresh(number, account=f"acc-{number}") for number in EVERY))
    async with bench.worker():
        await bench.rows("CONFIRMED", 9)
        await until(_counted(Where.ACCOUNT, before))


def _counted(where: Where, before: float) -> Callable[[], Awaitable[bool]]:
    async def more() -> bool:
        return count_of(where) > before

    return more


ALONE: Final = {Where.RECOVERY_CHECK, Where.PUBLISHED, Where.ACCOUNT}
"""Each of a test of its own, above."""


def test_every_place_has_its_case() -> None:
    cases = {case.where for case in UNITS} | {where for where, *_ in (*LOOP_SITES, *ELSEWHERE)} | ALONE
    assert cases == set(Where)
