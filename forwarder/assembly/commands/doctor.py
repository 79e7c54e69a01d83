"""Opens the parts that `forwarder doctor` checks, without changing or creating anything."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from forwarder.assembly.backend import database_of, open_log
from forwarder.assembly.commands.status import require_there, valid_sealing_keys
from forwarder.assembly.secrets import held_secrets
from forwarder.operations.show.doctor import DoctorParts
from forwarder.process.clock import SystemClock
from forwarder.settings import Distributed, Embedded, Settings
from forwarder.store.engine import open_engine
from forwarder.store.lists.overview import Overview
from forwarder.store.migrate import applied_revisions, is_current
from forwarder.tenancy.sql.admin import SqlTenancyAdmin
from forwarder.tenancy.sql.secrets import SqlSecrets


@asynccontextmanager
async def open_doctor(settings: Settings) -> AsyncIterator[DoctorParts]:
    """Opens the deployment of `settings`. Raises `BadSettings`."""
    require_there(settings)
    engine = open_engine(database_of(settings), pool_size=2)

    async def revisions() -> tuple[Sequence[str], bool]:
        return await applied_revisions(engine), await is_current(engine)

    async def admit() -> str | None:
        held = held_secrets(settings)
        if not held:
            return None
        await SqlSecrets(engine).admit(held, first=False)
        return ", ".join(secret.id for secret in held)

    async def sealing_keys(now: datetime) -> Sequence[str]:
        return await valid_sealing_keys(engine, now)

    try:
        async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
            yield DoctorParts(
                where=_where(settings.backend),
                log=log,
                topics=settings.topics,
                partitions=settings.environment.partitions,
                revisions=revisions,
                database_time=Overview(engine).time,
                database_settings=Overview(engine).server_settings,
                admit=admit,
                sealing_keys=sealing_keys,
                tenancy=SqlTenancyAdmin(engine),
                simulator=settings.environment.simulator_url,
                clock=SystemClock(),
            )
    finally:
        await engine.dispose()


def _where(backend: Embedded | Distributed) -> str:
    match backend:
        case Embedded(data_dir):
            return f"embedded, in {data_dir}"
        case Distributed(bootstrap_servers):
            return f"Kafka at {bootstrap_servers}, PostgreSQL at {', '.join(backend.hosts[-1:])}"
