"""A process that removes the guests of a database's workspaces, until it is killed.

`python -m tests.contract.store.sweeping_child DATABASE_URL`.
"""

import asyncio
import sys
from datetime import UTC, datetime

from forwarder.housekeeping.service import RetentionSweeper
from forwarder.process.clock import SystemClock
from forwarder.store.engine import open_engine
from forwarder.store.retention import GuestStore
from forwarder.tenancy.sql.admin import TenancyAdmin


class _In2030(SystemClock):
    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)


async def main(database_url: str) -> None:
    engine = open_engine(database_url)
    await RetentionSweeper(GuestStore(engine), TenancyAdmin(engine), _In2030()).sweep()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
