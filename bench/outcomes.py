"""Sees from outside how many submissions a flow has delivered, at next to no cost to what is measured.

It asks the PMS, which answers from memory, seldom while much is left to do, and the database only once the PMS has all: counting
rows ten times a second would cost PostgreSQL as much as a part of the flow does.
"""

import asyncio
import time
from types import TracebackType
from typing import Final, Self

import httpx
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, ProgrammingError

from bench.flows import CONFIRMED, Flow
from bench.scenarios import Scenario
from forwarder.store.engine import open_engine

_SOONEST_SECONDS: Final = 0.05
_LATEST_SECONDS: Final = 0.5
_FASTEST: Final = 10_000  # submissions a second: more than any flow delivers, so that no look comes late
_STALL_SECONDS: Final = 600.0  # one that a PMS refused four times with 503 is asked about again after four minutes


class Stalled(Exception):
    """What is counted stood still for ten minutes. Says how far it came."""


class Outcomes:
    """Waits for `wanted` submissions more than there were when it was entered, which may be none."""

    def __init__(self, database_url: str, pms_url: str, wanted: int, confirmed: str = CONFIRMED) -> None:
        self._database_url = database_url
        self._pms_url = pms_url
        self._confirmed = text(confirmed)
        self._wanted = wanted

    @classmethod
    def of(cls, flow: Flow, scenario: Scenario, wanted: int) -> Self:
        """Of a flow; of none where the scenario delivers none."""
        return cls(flow.database_url, flow.pms_url, wanted if scenario.delivers else 0, flow.confirmed)

    async def __aenter__(self) -> Self:
        self._http = httpx.AsyncClient(base_url=self._pms_url)
        self._engine = open_engine(self._database_url, pool_size=1, command_seconds=None)
        self._before = await self._now()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._engine.dispose()
        await self._http.aclose()

    async def wait(self) -> float:
        """When the last one was CONFIRMED, on the monotonic clock. Raises `Stalled`."""
        if self._wanted:
            await self._until("made")
            await self._until("confirmed")
        return time.monotonic()

    async def counts(self) -> dict[str, int]:
        """`made`, `twice` and `confirmed` since it was entered."""
        now = await self._now()
        return {name: number - self._before[name] for name, number in now.items()}

    async def made(self) -> int:
        """What the PMS made, which it answers from memory."""
        return await self._count("made")

    async def _now(self) -> dict[str, int]:
        stats = (await self._http.get("/stats")).raise_for_status().json()
        twice = stats.get("duplicates", 0)  # a PMS in Go does not tell: of as many made as were accepted, none is
        return {"made": await self._count("made"), "twice": twice, "confirmed": await self._count("confirmed")}

    async def _count(self, what: str) -> int:
        if what == "made":
            return int((await self._http.get("/count")).raise_for_status().text)
        try:
            async with self._engine.connect() as connection:
                return int((await connection.execute(self._confirmed)).scalar_one())
        except (ProgrammingError, OperationalError):  # the baseline makes its table when its consumer is up
            return 0

    async def _until(self, what: str) -> None:
        goal = self._before[what] + self._wanted
        seen, moved = -1, time.monotonic()
        while (now := await self._count(what)) < goal:
            if now != seen:
                seen, moved = now, time.monotonic()
            if time.monotonic() - moved > _STALL_SECONDS:
                raise Stalled(f"{seen:,} of {goal:,} {what}")
            await asyncio.sleep(min(_LATEST_SECONDS, max(_SOONEST_SECONDS, (goal - now) / _FASTEST)))
