"""What a page costs, however long the list is: `python -m bench.pages --rows 10000 --rows 10000000 --explain plans.txt`.

Starts Kafka and PostgreSQL, fills a database for each number of rows, and asks a query process on each over HTTP for pages anywhere
in the list and under each filter: the sizes in turns, several rounds, of which the medians are shown. Costs are CPU time: what else
the machine does blurs them less than times. `ratio` is the largest size to the smallest. `1 s of query's CPU` is how many a process
answers at most.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import uvloop
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.flows import RESERVATIONS
from bench.pages_cases import LIMIT, Case, cases
from bench.pages_load import ask
from bench.pages_plans import plans
from bench.pages_sites import Site, open_naive, open_site
from tools.servers.real_servers import RealServers

_CONNECTIONS = 16
_ALONE = 200  # pages asked for one after the other, for the time that one takes
_FEWEST = 10_000
_NAIVE = Case("all", f"{RESERVATIONS}?limit={LIMIT}&cursor={_FEWEST // 2}")
"""Of what the naive list has."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request of a case took: CPU µs of the query process and of PostgreSQL, and the median of the time, in ms; and how
    many a second were answered with 16 under way, by that one process."""

    case: str
    query_us: float
    postgres_us: float
    median_ms: float
    rate: float

    @property
    def cpu_us(self) -> float:
        """Of both."""
        return self.query_us + self.postgres_us


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description="What a page costs.")
    parser.add_argument("--rows", type=int, action="append", help="how many, may be repeated (10000 and 1000000)")
    parser.add_argument("-n", dest="count", type=int, default=1_000, help="requests of each case (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="in which the sizes take turns (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has it")
    parser.add_argument("--keep", metavar="NAME", help="keep the databases, as NAME_ROWS, and use those that are there")
    parser.add_argument("--explain", type=Path, metavar="FILE", help="write how PostgreSQL reads each page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write one JSON object a case and size")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Fill, measure, print."""
    arguments = _arguments(argv)
    for name in [name for name in os.environ if name.startswith("FORWARDER_") and "TEST" not in name]:
        del os.environ[name]  # the caller's own forwarder is not what is measured
    console = Console()
    with TemporaryDirectory() as temporary, RealServers() as servers:
        console.print(*servers.planned(), sep="\n")
        costs, beside = uvloop.run(_measured(servers, Path(temporary), arguments))
    console.print(_table(costs), _beside(*beside))
    if arguments.json:
        lines = [json.dumps({"rows": rows, **_shown(cost)}) for rows, size in costs.items() for cost in size]
        arguments.json.write_text("\n".join(lines) + "\n")
    return 0


async def _measured(
    servers: RealServers, logs: Path, arguments: argparse.Namespace
) -> tuple[dict[int, list[Cost]], list[Cost]]:
    """What each case costs, by the number of rows; and the list that the naive flow has, too: ours, then its."""
    async with AsyncExitStack() as stack:
        sites = [
            await stack.enter_async_context(open_site(servers, logs, rows, arguments.keep))
            for rows in sorted(arguments.rows or [_FEWEST, 1_000_000])
        ]
        wanted = [await _wanted(site, arguments) for site in sites]
        costs: dict[int, list[Cost]] = {site.rows: [] for site in sites}
        for same in track(list(zip(*wanted, strict=True)), "cases"):
            for site, cost in zip(sites, await _costs(sites, same, arguments), strict=True):
                costs[site.rows].append(cost)
        naive = await stack.enter_async_context(open_naive(servers, logs, sites[0]))
        costs_beside = await _costs([sites[0], naive], [_NAIVE, _NAIVE], arguments)
        return costs, costs_beside


async def _wanted(site: Site, arguments: argparse.Namespace) -> list[Case]:
    wanted = [case for case in await cases(site.database_url) if arguments.only in case.name]
    if arguments.explain:
        with arguments.explain.open("a") as file:
            file.write(await plans(site.database_url, wanted, site.rows))
    return wanted


async def _costs(sites: Sequence[Site], same: Sequence[Case], arguments: argparse.Namespace) -> list[Cost]:
    """Of one case, on each site: medians of rounds in which they take turns."""
    for site, case in zip(sites, same, strict=True):
        await ask(site.url, case.path, site.headers, count=_ALONE, connections=_CONNECTIONS)  # warms up
    rounds = [
        [await _cost(site, case, arguments.count) for site, case in zip(sites, same, strict=True)]
        for _ in range(arguments.rounds)
    ]
    return [_median(taken) for taken in zip(*rounds, strict=True)]


async def _cost(site: Site, case: Case, count: int) -> Cost:
    alone = await ask(site.url, case.path, site.headers, count=_ALONE, connections=1)
    meter, loop = await site.meter(), asyncio.get_running_loop()
    began = loop.time()
    await ask(site.url, case.path, site.headers, count=count, connections=_CONNECTIONS)
    took, spent = loop.time() - began, meter.spent()
    each = {name: seconds / count * 1e6 for name, seconds in spent.items()}
    return Cost(case.name, each["query"], each["PostgreSQL"], median(alone.seconds) * 1e3, count / took)


def _median(taken: Sequence[Cost]) -> Cost:
    return Cost(
        taken[0].case,
        median(cost.query_us for cost in taken),
        median(cost.postgres_us for cost in taken),
        median(cost.median_ms for cost in taken),
        median(cost.rate for cost in taken),
    )


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
    for name in ("ratio of CPU", "of ms", "1 s of query's CPU", "answered in 1 s"):
        table.add_column(name, justify="right")
    for same in zip(*costs.values(), strict=True):
        cells = [cell for cost in same for cell in (_both(cost), f"{cost.median_ms:.2f}")]
        first, last = same[0], same[-1]
        ratios = (_ratio(last.cpu_us, first.cpu_us), _ratio(last.median_ms, first.median_ms))
        rate = f"{1e6 / last.query_us:,.0f}" if last.query_us else ""
        table.add_row(first.case, *cells, *ratios, rate, f"{last.rate:,.0f}")
    return table


def _beside(ours: Cost, naive: Cost) -> str:
    figures = ((ours.query_us, naive.query_us), (ours.cpu_us, naive.cpu_us), (ours.rate, naive.rate))
    process, both, rate = (f"{one:,.0f} to {other:,.0f} ({_ratio(one, other)})" for one, other in figures)
    return f"The list without filters to the naive one: CPU µs of the process {process}, with PostgreSQL's {both}; a second {rate}"


def _ratio(largest: float, smallest: float) -> str:
    return f"{largest / smallest:.2f}" if smallest else ""


def _both(cost: Cost) -> str:
    return f"{cost.query_us:,.0f} + {cost.postgres_us:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
