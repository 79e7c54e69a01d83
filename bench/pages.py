"""What a page costs, however long the list is: `python -m bench.pages --rows 10000 --rows 1000000 --explain plans.txt`.

Starts Kafka and PostgreSQL, fills a database for each number of rows, and asks a query process over HTTP for pages anywhere in the
list and under each filter. Costs are CPU time: what else the machine does blurs them less than times. `ratio of CPU` is what the
largest size costs to the smallest; `1 s of query's CPU` is how many a process answers at most.
"""

import argparse
import asyncio
import json
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import uvloop
from rich.console import Console
from rich.table import Table

from bench.cpu import Meter, engines
from bench.flows import ACCOUNT, WORKSPACE
from bench.pages_cases import Case, cases
from bench.pages_load import ask
from bench.pages_plans import plans
from bench.pages_rows import fill
from bench.processes import FORWARDER, Role, local_url, output_of, port_of, running
from tests.support.databases import new_database
from tests.support.real_servers import RealServers

_CONNECTIONS = 16
_ALONE = 200  # pages asked for one after the other, for the time that one takes
_FEWEST = 10_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request of a case took: CPU µs of the query process and of PostgreSQL, and the median of the time, in ms."""

    case: str
    query_us: float
    postgres_us: float
    median_ms: float
    rate: float

    @property
    def cpu_us(self) -> float:
        """Of both."""
        return self.query_us + self.postgres_us


@dataclass(frozen=True, slots=True)
class Site:
    """A query process that is up, and how it is asked."""

    url: str
    headers: tuple[str, ...]
    meter: dict[str, list[int]]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description="What a page costs.")
    parser.add_argument("--rows", type=int, action="append", help="how many, may be repeated (10000 and 1000000)")
    parser.add_argument("-n", dest="count", type=int, default=2_000, help="requests of each case (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has it")
    parser.add_argument("--explain", type=Path, metavar="FILE", help="write how PostgreSQL reads each page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one JSON object a case and size")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Fill, measure, print."""
    arguments = _arguments(argv)
    for name in [name for name in os.environ if name.startswith("FORWARDER_") and "TEST" not in name]:
        del os.environ[name]  # the caller's own forwarder is not what is measured
    sizes = sorted(arguments.rows or [_FEWEST, 1_000_000])
    console = Console()
    costs: dict[int, list[Cost]] = {}
    with TemporaryDirectory() as temporary, RealServers() as servers:
        console.print(*servers.planned(), sep="\n")
        for rows in sizes:
            costs[rows] = uvloop.run(_measured(servers, Path(temporary), rows, arguments))
    console.print(_table(costs))
    if arguments.json:
        lines = [json.dumps({"rows": rows, **_shown(cost)}) for rows, size in costs.items() for cost in size]
        arguments.json.write_text("\n".join(lines) + "\n")
    return 0


async def _measured(servers: RealServers, logs: Path, rows: int, arguments: argparse.Namespace) -> list[Cost]:
    """What each case costs with so many rows, in a database that is dropped at the end."""
    async with AsyncExitStack() as stack:
        database_url = await stack.enter_async_context(new_database(servers.postgres.address()))
        database_url = database_url.replace("+asyncpg", "", 1)
        site = await _site(stack, servers, logs, database_url, rows)
        wanted = [case for case in await cases(database_url) if arguments.only in case.name]
        if arguments.explain:
            with arguments.explain.open("a") as file:
                file.write(await plans(database_url, wanted, rows))
        await ask(site.url, wanted[0].path, site.headers, count=arguments.count, connections=_CONNECTIONS)  # warms up
        return [await _cost(site, case, arguments.count) for case in wanted]


async def _site(stack: AsyncExitStack, servers: RealServers, logs: Path, database_url: str, rows: int) -> Site:
    """The database migrated and filled, and a query process on it."""
    environment = {
        "FORWARDER_DATABASE_URL": database_url,
        "FORWARDER_KAFKA_BOOTSTRAP_SERVERS": servers.kafka.address(),
        "FORWARDER_SECRET_KEY": secrets.token_urlsafe(32),
    }
    account = ("--workspace", WORKSPACE, "--id", ACCOUNT, "--kind", "generic", "--base-url", "http://127.0.0.1:9")
    await output_of([FORWARDER, "migrate"], environment)
    await output_of([FORWARDER, "topics", "create"], environment)
    await output_of([FORWARDER, "workspace", "add", WORKSPACE], environment)
    await output_of([FORWARDER, "account", "add", *account, "--credential", "secret"], environment)
    key = json.loads(await output_of([FORWARDER, "key", "add", "--workspace", WORKSPACE, "--json"], environment))
    await fill(database_url, rows)
    url = local_url()
    command = [FORWARDER, "query", "--host", "127.0.0.1", "--port", port_of(url)]
    query = await stack.enter_async_context(
        running(Role("query", command, environment, f"{url}/readyz"), logs, servers.reaper)
    )
    headers = (f"authorization: Bearer {key['token']}", f"workspaceId: {WORKSPACE}", f"integrationAccountId: {ACCOUNT}")
    return Site(url, headers, {"query": [query.pid], "PostgreSQL": engines().get("PostgreSQL", [])})


async def _cost(site: Site, case: Case, count: int) -> Cost:
    alone = await ask(site.url, case.path, site.headers, count=_ALONE, connections=1)
    meter, loop = Meter(site.meter), asyncio.get_running_loop()
    began = loop.time()
    await ask(site.url, case.path, site.headers, count=count, connections=_CONNECTIONS)
    took, spent = loop.time() - began, meter.spent()
    each = {name: seconds / count * 1e6 for name, seconds in spent.items()}
    return Cost(case.name, each["query"], each["PostgreSQL"], median(alone.seconds) * 1e3, count / took)


def _shown(cost: Cost) -> dict[str, str | float]:
    figures = {"query_us": cost.query_us, "postgres_us": cost.postgres_us, "ms": cost.median_ms, "rate": cost.rate}
    return {"case": cost.case, **{name: round(value, 2) for name, value in figures.items()}}


def _table(costs: dict[int, list[Cost]]) -> Table:
    """A row a case; of each size the CPU µs of query and PostgreSQL and the time in ms; and the largest's ratio to the smallest."""
    table = Table(title="CPU µs of query + PostgreSQL for one request; ms from asking to its answer, alone")
    table.add_column("")
    for rows in costs:
        table.add_column(f"{rows:,} rows", justify="right")
        table.add_column("ms", justify="right")
    table.add_column("ratio of CPU", justify="right")
    table.add_column("1 s of query's CPU", justify="right")
    for same in zip(*costs.values(), strict=True):
        cells = [cell for cost in same for cell in (_both(cost), f"{cost.median_ms:.2f}")]
        ratio = f"{same[-1].cpu_us / same[0].cpu_us:.2f}" if same[0].cpu_us else ""
        table.add_row(same[0].case, *cells, ratio, f"{1e6 / same[-1].query_us:,.0f}" if same[-1].query_us else "")
    return table


def _both(cost: Cost) -> str:
    return f"{cost.query_us:,.0f} + {cost.postgres_us:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
