"""The only place where concrete parts are chosen, opened and closed. Everything else sees ports.

What is opened here is closed in the reverse order, however the block ends.
"""

import asyncio
import fcntl
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import structlog
from pydantic import ValidationError
from pydantic_core import to_json

from forwarder.ingress.outcomes import Outcomes
from forwarder.ingress.parts import IngressParts, IngressSettings
from forwarder.ingress.routes import ingress_routes
from forwarder.pms.directory import KINDS, open_directory
from forwarder.pms.open_contract import open_pms_contract
from forwarder.pms.wire import Patience
from forwarder.query.parts import QueryParts
from forwarder.query.routes import query_routes
from forwarder.reservation.identity import RequestIds
from forwarder.runtime.clock import Clock, SystemClock
from forwarder.runtime.health import Check, health_routes
from forwarder.runtime.http import Routes, http_app
from forwarder.runtime.supervision import Stop, serve
from forwarder.settings import BadSettings, Distributed, Embedded, Settings
from forwarder.simulator.app import simulator_app, simulator_below
from forwarder.simulator.faults import Faults, Mode
from forwarder.simulator.world import World
from forwarder.store.engine import Engine, open_engine
from forwarder.store.migrate import NotMigrated, migrate, require_current
from forwarder.store.overview import SqlOverview
from forwarder.store.reader import SqlReader
from forwarder.store.recorder import SqlRecorder
from forwarder.tenancy.deployment import NoSealingKey, load_sealer, publish_key, request_id_key
from forwarder.tenancy.directory import SqlDirectory
from forwarder.tenancy.port import CardSealer
from forwarder.tenancy.registry import SqlRegistry
from forwarder.tenancy.sealing import SecretVault
from forwarder.topics.embedded import EmbeddedLog
from forwarder.topics.kafka import KafkaLog
from forwarder.topics.port import Log, Publisher
from forwarder.worker.service import Worker, WorkerParts

__all__ = ["NoSealingKey", "NotMigrated"]

Listening = socket.socket
Ready = Callable[["Backend"], Awaitable[None]]

_log = structlog.get_logger(__name__)
_KEY_FILE = "secret.key"
_LOG_FILE = "log.sqlite3"
_STORE_FILE = "store.sqlite3"


class AlreadyRunning(RuntimeError):
    """Another process works on the data directory. The message names it."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The log and the database, open."""

    settings: Settings
    clock: Clock
    log: Log
    engine: Engine
    directory: SqlDirectory
    registry: SqlRegistry
    overview: SqlOverview

    async def sealer(self) -> CardSealer:
        """What seals to the worker's key."""
        return await load_sealer(self.engine)

    async def create_topics(self, partitions: int | None = None) -> Sequence[str]:
        """Create the topics that are missing; their names."""
        count = partitions or self.settings.environment.partitions
        async with self.log.admin() as admin:
            return await admin.create(dict.fromkeys(self.settings.topics.all(), count))


def pms_kinds() -> Sequence[str]:
    """The kinds of PMS that an account may be of."""
    return sorted(KINDS)


def contracts() -> Mapping[str, str]:
    """The published contracts: file name → text."""
    return {"pms-openapi.json": to_json(open_pms_contract(), indent=2).decode() + "\n"}


@asynccontextmanager
async def open_log(backend: Embedded | Distributed, *, partitions: int) -> AsyncIterator[Log]:
    """The log; its parts connect when they are entered."""
    match backend:
        case Embedded(data_dir):
            data_dir.mkdir(parents=True, exist_ok=True)
            yield EmbeddedLog(data_dir / _LOG_FILE, partitions=partitions)
        case Distributed(bootstrap_servers):
            yield KafkaLog(bootstrap_servers)


@asynccontextmanager
async def open_backend(settings: Settings) -> AsyncIterator[Backend]:
    """The backend, migrated: an embedded one migrates itself. Raises `NotMigrated`, `StoreUnavailable`."""
    where, clock = _database(settings), SystemClock()
    if isinstance(settings.backend, Embedded):
        settings.backend.data_dir.mkdir(parents=True, exist_ok=True)
        await migrate(where)
    engine = open_engine(where)
    try:
        await require_current(engine)
        if isinstance(settings.backend, Embedded):
            await publish_key(engine, _secret(settings))
        async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
            yield Backend(
                settings, clock, log, engine, SqlDirectory(engine, clock), SqlRegistry(engine), SqlOverview(engine)
            )
    finally:
        await engine.dispose()


def migrate_backend(settings: Settings) -> Sequence[str]:
    """Bring the database up to date and publish the public key; the revisions applied."""

    async def run() -> Sequence[str]:
        applied = await migrate(_database(settings))
        engine = open_engine(_database(settings))
        try:
            await publish_key(engine, _secret(settings))
        finally:
            await engine.dispose()
        return applied

    return asyncio.run(run())


async def run_ingress(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serve the ingress until `stop`."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_backend(settings))
        publisher = await stack.enter_async_context(backend.log.publisher())
        routes = await _open_ingress(stack, backend, publisher, stop)
        await _serve("ingress", [*routes, *health_routes({"log": publisher.ready})], backend, listening, stop)


async def run_query(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serve the query stage until `stop`."""
    async with open_backend(settings) as backend:
        routes = await _query(backend)
        checks = {"store": SqlReader(backend.engine).ready}
        await _serve("query", [*routes, *health_routes(checks)], backend, listening, stop)


async def run_worker(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Work until `stop`; the port answers health and metrics."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(open_backend(settings))
        publisher = await stack.enter_async_context(backend.log.publisher())
        worker = await _open_worker(stack, backend, publisher)
        routes = health_routes({**_worker_checks(backend, worker), "log": publisher.ready})
        async with _side_by_side(worker.run(stop), stop):
            await _serve("worker", routes, backend, listening, stop)


async def run_everything(settings: Settings, listening: Listening, stop: Stop, ready: Ready) -> None:
    """All stages and simulated PMSs in this process, on one port, until `stop`. `ready` is told when they work."""
    with _alone(settings):
        async with AsyncExitStack() as stack:
            backend = await stack.enter_async_context(open_backend(settings))
            await backend.create_topics()
            publisher = await stack.enter_async_context(backend.log.publisher())
            ingress = await _open_ingress(stack, backend, publisher, stop)
            worker = await _open_worker(stack, backend, publisher)
            journal = settings.environment.data_dir / "simulator.jsonl"
            world = stack.enter_context(World(backend.clock, calendars=False, journal=journal))
            checks = {**_worker_checks(backend, worker), "log": publisher.ready}
            routes = [*ingress, *await _query(backend), *health_routes(checks), simulator_below("/simulator", world)]
            async with _side_by_side(worker.run(stop), stop):
                await ready(backend)
                await _serve("up", routes, backend, listening, stop)


def simulated_world(*, delay_ms: float, fault: str, fault_rate: float, calendars: bool, state: Path | None) -> World:
    """The simulated PMSs of `forwarder simulate`. Raises `BadSettings` where there is no such fault."""
    wanted = {"delay_ms": delay_ms, "mode": fault if fault_rate else "none", "rate": fault_rate}
    try:
        faults = Faults.model_validate(wanted)
    except ValidationError:
        raise BadSettings(f"--fault must be one of {', '.join(get_args(Mode))}; it is {fault!r}.") from None
    return World(SystemClock(), calendars=calendars, journal=state, faults=faults)


async def run_simulator(world: World, listening: Listening, stop: Stop) -> None:
    """Serve simulated PMSs until `stop`."""
    _log.info("process.listening", role="simulate", port=listening.getsockname()[1])
    with world:
        await serve(simulator_app(world), listening, stop, grace_seconds=1.0)


async def _open_ingress(stack: AsyncExitStack, backend: Backend, publisher: Publisher, stop: Stop) -> Routes:
    environment, topics = backend.settings.environment, backend.settings.topics
    tail = await stack.enter_async_context(backend.log.tail(topics.results))
    outcomes = Outcomes(tail, backend.clock)
    await stack.enter_async_context(_side_by_side(outcomes.run(), stop, until_stopped=True))
    parts = IngressParts(
        publisher=publisher,
        requests_topic=topics.requests,
        directory=backend.directory,
        sealer=await backend.sealer(),
        ids=RequestIds(await request_id_key(backend.engine)),
        reader=SqlReader(backend.engine),
        outcomes=outcomes,
        clock=backend.clock,
        settings=IngressSettings(environment.wait_seconds, environment.max_wait_seconds),
    )
    return ingress_routes(parts)


async def _query(backend: Backend) -> Routes:
    ids = RequestIds(await request_id_key(backend.engine))
    return query_routes(QueryParts(backend.directory, SqlReader(backend.engine), ids))


async def _open_worker(stack: AsyncExitStack, backend: Backend, publisher: Publisher) -> Worker:
    settings, clock = backend.settings, backend.clock
    secret = _secret(settings)
    await publish_key(backend.engine, secret)
    patience = Patience(push_seconds=settings.environment.push_timeout_seconds)
    pms = await stack.enter_async_context(open_directory(clock, patience=patience))
    parts = WorkerParts(
        log=backend.log,
        topics=settings.topics,
        publisher=publisher,
        recorder=SqlRecorder(backend.engine),
        directory=backend.directory,
        vault=SecretVault([secret]),
        pms=pms,
        clock=clock,
        settings=settings.worker,
    )
    return Worker(parts)


def _worker_checks(backend: Backend, worker: Worker) -> Mapping[str, Check]:
    async def consuming() -> bool:
        return worker.consuming()

    return {"consuming": consuming, "store": SqlReader(backend.engine).ready}


async def _serve(role: str, routes: Routes, backend: Backend, listening: Listening, stop: Stop) -> None:
    _log.info("process.listening", role=role, port=listening.getsockname()[1])
    app = http_app(routes, backend.clock)
    await serve(app, listening, stop, grace_seconds=backend.settings.environment.grace_seconds)


@asynccontextmanager
async def _side_by_side(work: Awaitable[Any], stop: Stop, *, until_stopped: bool = False) -> AsyncIterator[None]:
    """Run `work` beside the block, and wait for it at the end. Where it fails, everything stops, and the block's end raises."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda _: stop.set())
    cancelling = asyncio.create_task(_cancel_after(task, stop)) if until_stopped else None
    try:
        yield
    finally:
        stop.set()
        if cancelling is not None:
            await cancelling
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _cancel_after(task: asyncio.Future[Any], stop: Stop) -> None:
    await stop.wait()
    task.cancel()


def _database(settings: Settings) -> str | Path:
    match settings.backend:
        case Embedded(data_dir):
            return data_dir / _STORE_FILE
        case Distributed(_, database_url):
            return database_url


def _secret(settings: Settings) -> str:
    """The secret that cards and credentials are sealed to. An embedded forwarder makes its own and keeps it in its directory."""
    if settings.secret_key is not None:
        return settings.secret_key
    if isinstance(settings.backend, Distributed):
        raise BadSettings(
            "FORWARDER_SECRET_KEY is missing: the key that cards and credentials are sealed to is derived from it. "
            "Set it, for migrate and every worker alike, to at least 16 characters that nobody can guess."
        )
    path = settings.backend.data_dir / _KEY_FILE
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """No other process runs everything on this data directory; the lock ends with the process, however that ends."""
    if isinstance(settings.backend, Distributed):
        yield
        return
    data_dir = settings.backend.data_dir
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(f"a forwarder already runs on the data directory {data_dir}") from None
        yield
