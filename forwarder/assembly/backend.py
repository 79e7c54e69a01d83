"""The log and the database, embedded or distributed: chosen by the settings, opened, migrated, closed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from forwarder.assembly.test_mode import Shadows
from forwarder.operations.audit import Audit
from forwarder.operations.tenancy import AuditedTenancy
from forwarder.process.clock import Clock, SystemClock
from forwarder.process.data_dir import make_private, secret_in
from forwarder.settings import BadSettings, Distributed, Embedded, Settings
from forwarder.store.audit.trail import SqlAuditTrail
from forwarder.store.database import Engine, open_engine
from forwarder.store.lists.reader import SqlOverview
from forwarder.store.migrate import migrate, require_current
from forwarder.store.submissions.recorder import SqlRepairs
from forwarder.tenancy.port import Sealer, TenancyAdmin
from forwarder.tenancy.sealing import sealer_of
from forwarder.tenancy.sql.admin import SqlTenancyAdmin
from forwarder.tenancy.sql.deployment import load_sealer, publish_key
from forwarder.tenancy.sql.directory import SqlDirectory
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Log

_LOG_FILE = "log.sqlite3"
_STORE_FILE = "store.sqlite3"


@dataclass(frozen=True, slots=True)
class Backend:
    """The log and the database, open."""

    settings: Settings
    clock: Clock
    log: Log
    engine: Engine
    directory: SqlDirectory
    tenancy: TenancyAdmin
    overview: SqlOverview
    repairs: SqlRepairs
    audit: Audit
    trail: SqlAuditTrail

    async def sealer(self) -> Sealer:
        """What seals to the worker's key."""
        return await load_sealer(self.engine)

    async def create_topics(self, partitions: int | None = None) -> Sequence[str]:
        """Create the topics that are missing; their names."""
        count = partitions or self.settings.environment.partitions
        async with self.log.admin() as admin:
            return await admin.create(dict.fromkeys(self.settings.topics.all(), count))


@asynccontextmanager
async def open_log(
    backend: Embedded | Distributed, *, partitions: int, session_seconds: float = 10.0
) -> AsyncIterator[Log]:
    """The log. Its parts connect when they are opened."""
    match backend:
        case Embedded(data_dir):
            make_private(data_dir)
            yield EmbeddedLog(data_dir / _LOG_FILE, partitions=partitions)
        case Distributed(bootstrap_servers, kafka_security=security):
            yield KafkaLog(bootstrap_servers, security=security, session_timeout_seconds=session_seconds)


@asynccontextmanager
async def open_backend(settings: Settings) -> AsyncIterator[Backend]:
    """The backend, migrated: an embedded one migrates itself. Raises `NotMigrated`, `StoreUnavailable`."""
    where, clock = _database(settings), SystemClock()
    if isinstance(settings.backend, Embedded):
        make_private(settings.backend.data_dir)
        await migrate(where)
    engine = open_engine(where)
    try:
        await require_current(engine)
        if isinstance(settings.backend, Embedded):
            await publish_key(engine, secret_of(settings))
        environment = settings.environment
        async with open_log(
            settings.backend, partitions=environment.partitions, session_seconds=environment.session_seconds
        ) as log:
            shadows = Shadows(environment.simulator_url, _seal(settings))
            trail = SqlAuditTrail(engine)
            audit = Audit(trail, clock)
            yield Backend(
                settings=settings,
                clock=clock,
                log=log,
                engine=engine,
                directory=SqlDirectory(engine, clock, shadow=shadows.of),
                tenancy=AuditedTenancy(SqlTenancyAdmin(engine), audit),
                overview=SqlOverview(engine),
                repairs=SqlRepairs(engine),
                audit=audit,
                trail=trail,
            )
    finally:
        await engine.dispose()


def migrate_backend(settings: Settings) -> Sequence[str]:
    """Upgrade the database and publish the public key; the revisions applied."""

    async def run() -> Sequence[str]:
        applied = await migrate(_database(settings))
        engine = open_engine(_database(settings))
        try:
            await publish_key(engine, secret_of(settings))
        finally:
            await engine.dispose()
        return applied

    return asyncio.run(run())


def _database(settings: Settings) -> str | Path:
    match settings.backend:
        case Embedded(data_dir):
            return data_dir / _STORE_FILE
        case Distributed(_, database_url):
            return database_url


def _seal(settings: Settings) -> Callable[[str], str] | None:
    """Seals to the workers' key, in a process that knows their secret; None in any other."""
    unknown = isinstance(settings.backend, Distributed) and settings.secret_key is None
    return None if unknown else sealer_of(secret_of(settings)).seal_text


def secret_of(settings: Settings) -> str:
    """The secret that cards and credentials are sealed to. An embedded forwarder makes its own and keeps it in its directory."""
    if settings.secret_key is not None:
        return settings.secret_key
    if isinstance(settings.backend, Distributed):
        raise BadSettings(
            "FORWARDER_SECRET_KEY is missing: the key that cards and credentials are sealed to is derived from it. "
            "Set it, for migrate and every worker alike, to at least 16 characters that nobody can guess."
        )
    return secret_in(settings.backend.data_dir)
