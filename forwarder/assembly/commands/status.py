"""Opens the parts that `forwarder status` reads, so that it can show the log or the store alone, or a store without migration."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from forwarder.assembly.backend import database_of, open_log
from forwarder.operations.recovery.topics import TopicCheck
from forwarder.operations.show.standing import Group
from forwarder.operations.show.status import StatusReader, StoreParts
from forwarder.process.clock import SystemClock
from forwarder.settings import BadSettings, Embedded, Settings
from forwarder.store.audit_trail import SqlAuditTrail
from forwarder.store.deployment import BacklogReader, ProcessRegister
from forwarder.store.engine import Engine, open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.migrate import HEAD, applied_revisions, is_current
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import Places
from forwarder.tenancy.sql.admin import SqlTenancyAdmin
from forwarder.tenancy.sql.endpoints import SqlEndpoints
from forwarder.tenancy.sql.secrets import SqlSecrets, load_sealing_keys


@asynccontextmanager
async def open_status(settings: Settings) -> AsyncIterator[StatusReader]:
    """The reader of this deployment's status. Creates nothing: raises `BadSettings` if an embedded deployment's directory has no
    data."""
    require_there(settings)
    where, clock, topics = database_of(settings), SystemClock(), settings.topics
    engine = open_engine(where, pool_size=2)

    async def revisions() -> tuple[Sequence[str], bool]:
        return await applied_revisions(engine), await is_current(engine)

    async def sealing_keys(now: datetime) -> Sequence[str]:
        return await valid_sealing_keys(engine, now)

    parts = StoreParts(
        revisions=revisions,
        wanted_revision=HEAD,
        standing=BacklogReader(engine),
        overview=Overview(engine),
        accounts=SqlTenancyAdmin(engine),
        processes=ProcessRegister(engine),
        workers=Recorder(engine),
        endpoints=SqlEndpoints(engine),
        secrets=SqlSecrets(engine),
        sealing_keys=sealing_keys,
        trail=SqlAuditTrail(engine),
    )
    groups = [Group(settings.worker.group, topics.requests), Group(settings.notifier.group, topics.results)]
    try:
        async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
            check = TopicCheck(log, topics.requests, Places(engine), clock)
            yield StatusReader(log, topics.all(), groups, parts, check, clock)
    finally:
        await engine.dispose()


def require_there(settings: Settings) -> None:
    """Raises `BadSettings` if an embedded deployment's directory has no data."""
    if isinstance(settings.backend, Embedded) and not settings.backend.data_dir.is_dir():
        raise BadSettings(
            f"There is no forwarder in {settings.backend.data_dir}: start one with `forwarder up`, or name its directory in "
            "FORWARDER_DATA_DIR."
        )


async def valid_sealing_keys(engine: Engine, now: datetime) -> Sequence[str]:
    """The ids of the keys that cards can be sealed to now."""
    keys = await load_sealing_keys(engine, now=now)
    return [key.key_id for key in keys if key.not_before <= now < key.not_after]
