"""The log and the database, embedded or distributed: chosen by the settings, opened, migrated, closed."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from forwarder.assembly.secrets import (
    held_secrets,
    notifier_pairs,
    open_keyring,
    require_notifier_key,
    required_secrets,
    trusted_keys,
)
from forwarder.assembly.test_mode import Shadows
from forwarder.http.admission import Admission
from forwarder.observability.tracing.tracer import Tracer
from forwarder.oversight.audit import Audit
from forwarder.oversight.tenancy import AuditedTenancy
from forwarder.process.clock import Clock, SystemClock
from forwarder.process.data_dir import make_private
from forwarder.reservation.submission import RequestIds
from forwarder.settings import Distributed, Embedded, Settings
from forwarder.store.audit_trail import SqlAuditTrail
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.migrate import migrate, require_current
from forwarder.store.roles import make_roles
from forwarder.store.submissions.repairs import Repairs
from forwarder.tenancy.access import Access, BadTokens
from forwarder.tenancy.port import Sealer, TenancyAdmin, TenancyUnavailable
from forwarder.tenancy.sealing import Keyring, PublicKeys, PublicKeySealer
from forwarder.tenancy.sql.admin import SqlTenancyAdmin
from forwarder.tenancy.sql.database import message_key, request_id_key, shared_keys, token_key
from forwarder.tenancy.sql.directory import SqlDirectory
from forwarder.tenancy.sql.secrets import SqlSealingKeys, SqlSecrets
from forwarder.topics.embedded.log import EmbeddedLog
from forwarder.topics.kafka.log import KafkaLog
from forwarder.topics.port import Log
from forwarder.topics.signing import MessageSigner
from forwarder.topics.traced import TracedLog

_LOG_FILE = "log.sqlite3"
_STORE_FILE = "store.sqlite3"


@dataclass(frozen=True, slots=True)
class Backend:
    """The log and the database, open."""

    settings: Settings
    clock: Clock
    log: Log
    tracer: Tracer | None
    engine: Engine
    directory: SqlDirectory
    access: Access
    admission: Admission
    tenancy: TenancyAdmin
    overview: Overview
    repairs: Repairs
    audit: Audit
    trail: SqlAuditTrail
    keyring: Keyring | None
    """The deployment's secrets, in a process that has them."""
    keys: Mapping[str, str] = field(repr=False)
    """The keys of ids, messages and tokens that the database had when it was opened."""

    async def sealer(self) -> Sealer:
        """The sealer of credentials for the workers. Raises `BadSettings`, `NoSecretYet`, `NotTrusted`."""
        return self.keyring or PublicKeySealer((await self._public_keys()).accounts_key)

    async def webhook_sealer(self) -> Sealer:
        """The sealer of webhooks' secrets for the notifier. Raises as `sealer`, and `UnknownSecret`."""
        if self.keyring is not None:
            return PublicKeySealer(self.keyring.active.webhooks.public_key)
        pairs = notifier_pairs(self.settings, None)
        if not pairs:
            return PublicKeySealer((await self._public_keys()).webhooks_key)
        # The process's own key: the public keys in the database need not be trusted.
        return PublicKeySealer((await require_notifier_key(self.engine, pairs)).public_key)

    async def request_ids(self) -> RequestIds:
        """Issues and recognises request ids."""
        return RequestIds(await request_id_key(self.engine))

    async def signer(self) -> MessageSigner:
        """Signs and verifies messages."""
        return MessageSigner(await message_key(self.engine))

    async def has_our_keys(self) -> bool:
        """Whether the database still has the keys that this process works with: a database that was created anew, instead of being
        restored, has others. True if it cannot be asked, or has none yet."""
        try:
            now = await shared_keys(self.engine)
        except TenancyUnavailable:
            return True
        return all(now.get(name, value) == value for name, value in self.keys.items())

    async def _public_keys(self) -> PublicKeys:
        return await SqlSecrets(self.engine).trusted_keys(trusted_keys(self.settings, self.keyring))

    def pushing_directory(self) -> SqlDirectory:
        """Accounts with their credentials, which only workers' database role may read."""
        shadow = _shadows(self.settings, self.keyring).of
        return SqlDirectory(self.engine, self.clock, shadow=shadow, for_pushes=True)

    async def create_topics(
        self, partitions: int | None = None, *, retention: timedelta | None = None, replicas: int | None = None
    ) -> Sequence[str]:
        """Creates missing topics; returns their names. Raises as `TopicAdmin.create`."""
        count = partitions or self.settings.environment.partitions
        async with self.log.admin() as admin:
            counts = dict.fromkeys(self.settings.topics.all(), count)
            return await admin.create(counts, retention=retention, replicas=replicas)


def _shadows(settings: Settings, keyring: Keyring | None) -> Shadows:
    return Shadows(settings.environment.simulator_url, None if keyring is None else keyring.seal_text)


def _system(backend: Embedded | Distributed) -> str:
    return "embedded" if isinstance(backend, Embedded) else "kafka"


@asynccontextmanager
async def open_log(
    backend: Embedded | Distributed, *, partitions: int, session_seconds: float = 10.0, member: str | None = None
) -> AsyncIterator[Log]:
    """The log. Its parts connect when they are opened."""
    match backend:
        case Embedded(data_dir):
            make_private(data_dir)
            yield EmbeddedLog(data_dir / _LOG_FILE, partitions=partitions)
        case Distributed(bootstrap_servers, kafka_security=security):
            yield KafkaLog(bootstrap_servers, security=security, session_timeout_seconds=session_seconds, member=member)


@asynccontextmanager
async def open_backend(
    settings: Settings, *, any_secret: bool = False, tracer: Tracer | None = None
) -> AsyncIterator[Backend]:
    """The backend, migrated: an embedded one migrates itself. Raises `NotMigrated`, `StoreUnavailable`, and `UnknownSecret` unless
    `any_secret` is given, for commands that manage secrets. `tracer`: records spans of the log's messages."""
    where, clock = database_of(settings), SystemClock()
    if isinstance(settings.backend, Embedded):
        make_private(settings.backend.data_dir)
        await migrate(where)
    engine = open_engine(where)
    try:
        await require_current(engine)
        held = held_secrets(settings)
        if any_secret:
            keyring = Keyring(held) if held else None
        else:
            keyring = await open_keyring(engine, held, first=isinstance(settings.backend, Embedded))
            if keyring is not None and isinstance(settings.backend, Embedded):
                await SqlSealingKeys(engine, keyring).publish(now=clock.now())
        environment = settings.environment
        async with open_log(
            settings.backend,
            partitions=environment.partitions,
            session_seconds=environment.session_seconds,
            member=settings.member_name,
        ) as log:
            trail = SqlAuditTrail(engine)
            audit = Audit(trail, clock)
            directory = SqlDirectory(engine, clock, shadow=_shadows(settings, keyring).of)
            yield Backend(
                settings=settings,
                clock=clock,
                log=log if tracer is None else TracedLog(log, tracer, _system(settings.backend)),
                tracer=tracer,
                engine=engine,
                directory=directory,
                access=Access(directory, clock, BadTokens(clock, environment.bad_tokens_per_minute)),
                admission=settings.admission(),
                tenancy=AuditedTenancy(SqlTenancyAdmin(engine), audit),
                overview=Overview(engine),
                repairs=Repairs(engine),
                audit=audit,
                trail=trail,
                keyring=keyring,
                keys=await shared_keys(engine),
            )
    finally:
        await engine.dispose()


def migrate_backend(settings: Settings) -> Sequence[str]:
    """Upgrades the database, and registers the secret in a new one; returns the applied revisions. Raises `UnknownSecret`."""
    held = required_secrets(settings)

    async def run() -> Sequence[str]:
        applied = await migrate(database_of(settings))
        engine = open_engine(database_of(settings))
        try:
            keyring = await open_keyring(engine, held, first=True)
            if keyring is not None:
                await SqlSealingKeys(engine, keyring).publish(now=SystemClock().now())
            # Created now, so that no stage needs write access to them.
            await request_id_key(engine)
            await message_key(engine)
            await token_key(engine)
        finally:
            await engine.dispose()
        return applied

    return asyncio.run(run())


def make_database_roles(settings: Settings) -> Sequence[str]:
    """Creates a role for each stage in a migrated database; returns their names. Raises `CannotMakeRoles`."""
    return asyncio.run(make_roles(database_of(settings)))


def database_of(settings: Settings) -> str | Path:
    """Where the database is: a URL, or a file."""
    match settings.backend:
        case Embedded(data_dir):
            return data_dir / _STORE_FILE
        case Distributed(_, database_url):
            return database_url
