"""The running processes in SQL: each updates its row every few seconds, and deletes it when it ends."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database
from forwarder.store.processes.port import RunningProcess, ThrottleState
from forwarder.store.sql import Moment, insert_into
from forwarder.store.tables import processes

_KEPT: Final = timedelta(minutes=10)
_EVERY: Final = select(processes).order_by(processes.c.role, processes.c.started_at)


class SqlProcesses:
    """`ProcessReader` on PostgreSQL or SQLite; and the writing side. Raises `StoreUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)

    async def tell(self, process: RunningProcess) -> None:
        """Write down how `process` is now."""
        values: dict[str, Any] = asdict(process) | {"throttles": to_json(process.throttles).decode()}
        new = insert_into(self._database.dialect, processes).values(values)
        known = {"seen_at": new.excluded.seen_at, "throttles": new.excluded.throttles}
        await self._database.run(new.on_conflict_do_update(index_elements=["id"], set_=known))

    async def end(self, process_id: str) -> None:
        """Deletes the row of a process that ends."""
        await self._database.run(delete(processes).where(processes.c.id == process_id))

    async def forget_old(self, process: RunningProcess) -> None:
        """Delete what processes left behind that were killed."""
        old = delete(processes).where(processes.c.seen_at < bindparam("before", type_=Moment()))
        await self._database.run(old, {"before": process.seen_at - _KEPT})

    async def processes(self) -> Sequence[RunningProcess]:
        return [_process(row) for row in await self._database.read(_EVERY)]


def _process(row: Any) -> RunningProcess:
    values = {column.name: getattr(row, column.name) for column in processes.c}
    throttles = [ThrottleState(**each) for each in from_json(row.throttles)]
    return RunningProcess(**values | {"throttles": throttles})
