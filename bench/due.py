"""A worker and a backlog that no memory should hold: `python -m bench.due --rows 100000`.

Starts what `python -m bench` starts, puts so many rows into the store that are due already, and then starts a worker, whose PMS
answers at once. Prints how fast it catches up, what that costs, and the most memory that it had. A run fails where not all were
made once and CONFIRMED.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.bodies import reservation
from bench.cpu import Meter, engines
from bench.flows import ACCOUNT, PARTITIONS, Ground
from bench.ground import judged
from bench.growth import faults
from bench.ours import Roles, open_site
from bench.outcomes import Outcomes
from bench.scenarios import named
from tools.due_rows import put_due
from tools.servers.process_memory import megabytes, peak_megabytes


def main(argv: Sequence[str] | None = None) -> int:
    """As `judged`: all is to be made exactly once."""
    parser = argparse.ArgumentParser(prog="python -m bench.due", description="A worker that catches up.")
    parser.add_argument("--rows", type=int, default=100_000, help="due at its start (%(default)s)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the processes' logs here")
    arguments = parser.parse_args(argv)
    console = Console()
    return judged(console, arguments.logs, lambda ground: _catch_up(ground, arguments.rows, console))


async def _catch_up(ground: Ground, rows: int, console: Console) -> list[str]:
    """Show what came of it; what is not as it should be, in words."""
    scenario = replace(named(["pms-0"], every=False)[0], submissions=rows)
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(ground, scenario))
        await put_due(
            site.database_url, [ACCOUNT], rows, partitions=PARTITIONS, booking=json.loads(reservation("due", 0))
        )
        outcomes = await stack.enter_async_context(Outcomes(site.database_url, site.pms_url, rows))
        roles = Roles(ground, stack)
        await roles.start("worker", site.secret, 1)
        worker = roles.up["worker"].pid
        at_start, meter = megabytes(worker), Meter({**engines(), "worker": [worker]})
        made, since = (await outcomes.counts())["made"], time.monotonic()
        took, spent = await outcomes.wait() - since, meter.spent()
        left = max(rows - made, 1)
        cpu = (f"{name} {spent[name] / left * 1e6:,.0f}" for name in ("worker", "Kafka", "PostgreSQL"))
        console.print(f"{rows:,} due, caught up at {left / took:,.0f} a second")
        console.print(f"CPU µs a reservation: {', '.join(cpu)}")
        console.print(f"the worker: {at_start:.0f} MB when it was ready, {peak_megabytes(worker):.0f} MB at the most")
        return faults(await outcomes.counts(), rows)


if __name__ == "__main__":
    sys.exit(main())
