"""Workers in number, and one that dies again and again: `python -m bench.workers`.

`rate`: an account with a rate and a long backlog, at one, two and four workers; what its PMS got a second, once they share the
rate.
`kills`: a backlog at one worker that is killed with SIGKILL every twelve seconds and started again at once; what it delivered, the
longest time without a delivery, and how long a start takes to its first one: without and with `FORWARDER_MEMBER_NAME`. A run fails
where a reservation was made twice.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.bodies import reservation
from bench.flows import ACCOUNT, PARTITIONS, Ground
from bench.ground import judged
from bench.ours import Site, open_site
from bench.outcomes import Outcomes
from bench.processes import FORWARDER, Role, Running, local_url, output_of, port_of, running
from bench.scenarios import named
from tools.due_rows import put_due

_WORKERS = (1, 2, 4)
_SHARING_SECONDS = 5.0  # until the workers have lent each other what they need
_KILL_EVERY_SECONDS = 12.0
_LOOK_SECONDS = 0.02
_ARRIVING_SECONDS = 0.3  # what a killed worker has sent may still reach the PMS


def main(argv: Sequence[str] | None = None) -> int:
    """As `judged`: nothing is to be made twice."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description="Workers that share a rate, or die.")
    parser.add_argument("what", nargs="?", choices=["rate", "kills"], default="rate")
    parser.add_argument("--rate", type=int, default=20, help="a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30, help="measured at each number of workers (%(default)s)")
    parser.add_argument("--kills", type=int, default=10, help="(%(default)s)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the processes' logs here")
    asked = parser.parse_args(argv)
    console = Console()

    async def measure(ground: Ground) -> list[str]:
        if asked.what == "kills":
            names: tuple[dict[str, str], ...] = ({}, {"FORWARDER_MEMBER_NAME": "worker-0"})
            return [wrong for name in names for wrong in await _killed(ground, asked.kills, name, console)]
        return [
            wrong for workers in _WORKERS for wrong in await _rate(ground, workers, asked.rate, asked.seconds, console)
        ]

    return judged(console, asked.logs, measure)


async def _rate(ground: Ground, workers: int, rate: int, seconds: float, console: Console) -> list[str]:
    async with AsyncExitStack() as stack:
        site, outcomes = await _backlog(ground, stack, rows=int(rate * (seconds + 60)), pms="pms-0")
        await output_of([FORWARDER, "account", "set", ACCOUNT, "--rate", str(rate)], site.secret)
        for number in range(workers):
            await _worker(ground, stack, site, number)
        await asyncio.sleep(_SHARING_SECONDS)
        before, began = (await outcomes.counts())["made"], time.monotonic()
        await asyncio.sleep(seconds)
        after, took = await outcomes.counts(), time.monotonic() - began
        measured = (after["made"] - before) / took
        console.print(
            f"{workers} workers, --rate {rate}: {measured:.2f} a second at the PMS, {measured / rate:.3f} of it"
        )
        return _twice(after)


async def _killed(ground: Ground, kills: int, name: Mapping[str, str], console: Console) -> list[str]:
    async with AsyncExitStack() as stack:
        site, outcomes = await _backlog(ground, stack, rows=200_000, pms="pms-50")
        worker = await _worker(ground, stack, replace(site, secret={**site.secret, **name}), 0)
        seen, first = [(time.monotonic(), 0)], list[float]()
        console.print(f"with {name or 'no name of its own'}:")
        for kill in range(kills + 1):
            if kill:
                worker.kill()
                await asyncio.sleep(_ARRIVING_SECONDS)
            started, at_start = time.monotonic(), await outcomes.made()
            starting = asyncio.create_task(worker.start() if kill else asyncio.sleep(0))
            while time.monotonic() < started + _KILL_EVERY_SECONDS:
                seen.append((time.monotonic(), await outcomes.made()))
                if kill and len(first) < kill and seen[-1][1] > at_start:
                    first.append(seen[-1][0] - started)
                await asyncio.sleep(_LOOK_SECONDS)
            await starting
            console.print(f"{kill} kills: {seen[-1][1]:,} delivered")
        moved = [at for (_, before), (at, made) in itertools.pairwise(seen) if made != before]
        gaps = [later - earlier for earlier, later in itertools.pairwise(moved)]
        console.print(f"longest time without a delivery {max(gaps):.1f} s")
        console.print(
            f"start to the first delivery, s: median {statistics.median(first):.1f}, longest {max(first):.1f}"
        )
        return _twice(await outcomes.counts())


async def _backlog(ground: Ground, stack: AsyncExitStack, rows: int, pms: str) -> tuple[Site, Outcomes]:
    scenario = replace(named([pms], every=False)[0], submissions=rows)
    site = await stack.enter_async_context(open_site(ground, scenario))
    booking = json.loads(reservation("workers", 0))
    await put_due(site.database_url, [ACCOUNT], rows, partitions=PARTITIONS, booking=booking)
    return site, await stack.enter_async_context(Outcomes(site.database_url, site.pms_url, rows))


async def _worker(ground: Ground, stack: AsyncExitStack, site: Site, number: int) -> Running:
    url = local_url()
    command = [FORWARDER, "worker", "--host", "127.0.0.1", "--port", port_of(url)]
    role = Role(f"worker-{number}", command, site.secret, f"{url}/readyz")
    return await stack.enter_async_context(running(role, ground.logs, ground.reaper))


def _twice(counts: dict[str, int]) -> list[str]:
    return [f"{counts['twice']:,} made twice"] if counts["twice"] else []


if __name__ == "__main__":
    sys.exit(main())
