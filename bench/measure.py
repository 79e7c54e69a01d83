"""One measurement of one flow: a warm-up, the load, and the wait until the last row is CONFIRMED."""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import asyncpg
import httpx

from bench.flows import Flow
from bench.processes import output_of

_POLL_SECONDS = 0.1
_STALL_SECONDS = 120.0
_WORKER_AWAY_SECONDS = 1.0
_PAGE = 200
_CONFIRMED = "select count(*) from reservations where status = 'CONFIRMED'"


class Stalled(Exception):
    """The number of confirmed rows stood still for two minutes. Says at which status the rows are."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent: `warm` submissions that are not measured, then `count` over `connections`."""

    count: int
    connections: int
    warm: int
    kill_worker: bool


@dataclass(frozen=True, slots=True)
class Measurement:
    """Rates are submissions a second, times milliseconds of one POST as its sender sees it.

    `end_to_end_rate`: from the first POST to the last row CONFIRMED. `made` and `duplicates` are what the PMS says, without the
    warm-up; `read_back` is how many reservations a reader of the pages sees, warm-up included.
    """

    flow: str
    statuses: dict[str, int]
    accept_rate: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    end_to_end_rate: float
    end_to_end_seconds: float
    confirmed: int
    made: int
    duplicates: int
    worker_killed: bool
    read_back: int | None

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


async def measure(flow: Flow, plan: Plan) -> Measurement:
    """Raises `Stalled` when the flow does not finish."""
    connection = await asyncpg.connect(flow.database_url)
    try:
        await _load(flow, plan.warm, plan.connections, run="warm")
        await _until_confirmed(connection, plan.warm)
        before = await _pms_counts(flow)
        watch = asyncio.create_task(_watch(connection, flow, plan))
        load = await _load(flow, plan.count, plan.connections, run=f"{time.time_ns() // 1_000_000:x}")
        ended = await watch
        confirmed: int = await connection.fetchval(_CONFIRMED)
    finally:
        await connection.close()
    after = await _pms_counts(flow)
    seconds = ended - load["began"]
    return Measurement(
        flow=flow.name,
        statuses=load["statuses"],
        accept_rate=load["rate"],
        p50_ms=load["p50_ms"],
        p99_ms=load["p99_ms"],
        max_ms=load["max_ms"],
        end_to_end_rate=round(plan.count / seconds, 1),
        end_to_end_seconds=round(seconds, 2),
        confirmed=confirmed - plan.warm,
        made=after["made"] - before["made"],
        duplicates=after["duplicates"] - before["duplicates"],
        worker_killed=plan.kill_worker,
        read_back=await _read_back(flow),
    )


async def ceiling(url: str, plan: Plan) -> dict[str, Any]:
    """What the load generator reaches against a server that does nothing."""
    return await _post(url, (), plan.count * 2, plan.connections, run="ceiling")


async def _load(flow: Flow, count: int, connections: int, *, run: str) -> dict[str, Any]:
    return await _post(flow.post_url, flow.headers, count, connections, run=run)


async def _post(url: str, headers: tuple[str, ...], count: int, connections: int, *, run: str) -> dict[str, Any]:
    arguments = [url, "-n", str(count), "-c", str(connections), "--run", run]
    for header in headers:
        arguments += ["-H", header]
    summary: dict[str, Any] = json.loads(await output_of([sys.executable, "-m", "bench.load", *arguments]))
    return summary


async def _watch(connection: asyncpg.Connection, flow: Flow, plan: Plan) -> float:
    """When the last row was CONFIRMED. Kills the worker half way, where the plan says so, and brings it back."""
    if plan.kill_worker:
        await _until_confirmed(connection, plan.warm + plan.count // 2)
        flow.worker.kill()
        await asyncio.sleep(_WORKER_AWAY_SECONDS)
        await flow.worker.start()
    await _until_confirmed(connection, plan.warm + plan.count)
    return time.monotonic()


async def _until_confirmed(connection: asyncpg.Connection, wanted: int) -> None:
    seen, moved = -1, time.monotonic()
    while seen < wanted:
        if time.monotonic() - moved > _STALL_SECONDS:
            statuses = await connection.fetch("select status, count(*) from reservations group by status")
            raise Stalled(f"{seen} of {wanted} confirmed; rows by status: {[tuple(row) for row in statuses]}")
        now = await _confirmed(connection)
        if now != seen:
            seen, moved = now, time.monotonic()
        if seen < wanted:
            await asyncio.sleep(_POLL_SECONDS)


async def _confirmed(connection: asyncpg.Connection) -> int:
    try:
        count: int = await connection.fetchval(_CONFIRMED)
    except asyncpg.UndefinedTableError:  # the baseline makes its table when its consumer is up
        return 0
    return count


async def _pms_counts(flow: Flow) -> dict[str, int]:
    """`made` and `duplicates`, as the PMS at hand tells them: the lean one by a number, the simulator by more."""
    async with httpx.AsyncClient() as http:
        stats = (await http.get(f"{flow.pms.counts_url}/stats")).raise_for_status().json()
    duplicates = stats["duplicates"]
    return {"made": stats["made"], "duplicates": duplicates if isinstance(duplicates, int) else duplicates["surplus"]}


async def _read_back(flow: Flow) -> int | None:
    """How many different reservations a reader sees who follows `next` from the first page to the last."""
    if flow.list_url is None:
        return None
    seen: set[int] = set()
    headers = dict(header.split(": ", 1) for header in flow.headers)
    async with httpx.AsyncClient(headers=headers, timeout=30) as http:
        cursor = ""
        while True:
            parameters = {"limit": str(_PAGE), **({"cursor": cursor} if cursor else {})}
            page = (await http.get(flow.list_url, params=parameters)).raise_for_status().json()
            seen.update(item["id"] for item in page["data"])
            cursor = page["meta"]["cursors"]["next"]
            if not cursor:
                return len(seen)
