"""The housekeeping process."""

from contextlib import AsyncExitStack

from forwarder.assembly.backend import Backend
from forwarder.assembly.role import Listening, open_role_backend, reading_health, serve_role
from forwarder.housekeeping.service import BacklogMetrics, RetentionSweeper, keep_house
from forwarder.oversight.backlog import Group
from forwarder.process.supervision import Stop, side_by_side
from forwarder.settings import Settings
from forwarder.store.deployment import BacklogReader
from forwarder.store.retention import GuestStore


async def run_housekeeping(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Keeps house until `stop`; the port serves health and metrics."""
    async with AsyncExitStack() as stack:
        backend = await open_role_backend(stack, settings, "housekeeping")
        async with backend.log.admin():
            pass  # a refused login is no outage to wait out
        async with side_by_side(housekeeping(backend, stop), stop):
            await serve_role("housekeeping", [], backend, listening, stop, health=reading_health(backend), leaving=stop)


async def housekeeping(backend: Backend, stop: Stop) -> None:
    settings, clock = backend.settings, backend.clock
    groups = {
        "worker": Group(settings.worker.group, settings.topics.requests),
        "notifier": Group(settings.notifier.group, settings.topics.results),
    }
    store, accounts = BacklogReader(backend.engine), settings.environment.metrics_accounts
    backlog = BacklogMetrics(store, backend.tenancy, backend.log, clock, groups, accounts)
    sweeper = RetentionSweeper(GuestStore(backend.engine), backend.tenancy, clock)
    await keep_house(backlog, sweeper, clock, stop)
