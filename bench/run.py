"""One command that starts everything, measures both flows in turn, prints, and stops everything: `make bench`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.flows import Flow, Ground, forwarder, naive
from bench.measure import Measurement, Plan, Stalled, ceiling, measure
from bench.processes import CommandFailed, Role, local_url, port_of, running
from bench.report import append, show
from tests.support.ladder import Unavailable
from tests.support.real_servers import RealServers
from tests.support.server_process import ServerFailed

_FLOWS = {"forwarder": forwarder, "baseline": naive}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="The forwarder's speed, beside a naive flow's."
    )
    parser.add_argument("-n", dest="count", type=int, default=10_000, help="submissions (%(default)s)")
    parser.add_argument("-c", dest="connections", type=int, default=64, help="at a time (%(default)s)")
    parser.add_argument("--warm", type=int, default=1_000, help="submissions before the measured ones (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of both flows in turn; medians are shown (%(default)s)")
    parser.add_argument("--flow", choices=[*_FLOWS, "both"], default="both")
    parser.add_argument("--pms", choices=["lean", "simulator"], default="lean", help="what is pushed to (%(default)s)")
    parser.add_argument("--concurrency", type=int, default=64, help="pushes in flight (%(default)s)")
    parser.add_argument("--ingress-processes", type=int, default=1, help="for both flows (%(default)s)")
    parser.add_argument("--kill-worker", action="store_true", help="kill -9 the forwarder's worker half way")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one JSON object a measurement")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the processes' logs here")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when something could not be started or did not finish, or when the PMS has one too many or too few."""
    arguments = _arguments(argv)
    for name in [name for name in os.environ if name.startswith("FORWARDER_") and "TEST" not in name]:
        del os.environ[name]  # the caller's own forwarder is not what is measured
    console = Console()
    try:
        with TemporaryDirectory() as temporary, RealServers() as servers:
            logs = arguments.logs or Path(temporary)
            logs.mkdir(parents=True, exist_ok=True)
            console.print(*servers.planned(), sep="\n")
            ground = Ground(
                kafka=servers.kafka.address(),
                postgres=servers.postgres.address(),
                reaper=servers.reaper,
                logs=logs,
                concurrency=arguments.concurrency,
                ingress_processes=arguments.ingress_processes,
                pms=arguments.pms,
            )
            measurements = asyncio.run(_bench(arguments, ground, console))
    except (Unavailable, ServerFailed, CommandFailed, Stalled) as failure:
        print(f"no result: {failure}", file=sys.stderr)
        return 1
    show(measurements, console)
    if arguments.json:
        append(arguments.json, [{**_conditions(arguments), **m.as_json()} for m in measurements])
    return 0 if all(_exact(m, arguments.count) for m in measurements if m.flow == "forwarder") else 1


async def _bench(arguments: argparse.Namespace, ground: Ground, console: Console) -> list[Measurement]:
    plan = Plan(arguments.count, arguments.connections, arguments.warm, kill_worker=False)
    await _show_ceiling(plan, ground, console)
    flows = list(_FLOWS) if arguments.flow == "both" else [arguments.flow]
    measurements: list[Measurement] = []
    for _ in range(arguments.rounds):
        for name in flows:
            console.print(f"{name}: {arguments.warm:,} to warm up, then {arguments.count:,} …")
            kill = arguments.kill_worker and name == "forwarder"
            flow: AbstractAsyncContextManager[Flow] = _FLOWS[name](ground)
            async with flow as up:
                measurements.append(await measure(up, Plan(plan.count, plan.connections, plan.warm, kill_worker=kill)))
    return measurements


async def _show_ceiling(plan: Plan, ground: Ground, console: Console) -> None:
    url = local_url()
    role = Role("null-server", [sys.executable, "-m", "bench.lean_http", "--port", port_of(url)], {}, url)
    async with running(role, ground.logs, ground.reaper):
        reached = await ceiling(url, plan)
    console.print(f"load generator alone: {reached['rate']:,.0f} / s, p99 {reached['p99_ms']} ms")


def _conditions(arguments: argparse.Namespace) -> dict[str, object]:
    names = ("count", "connections", "warm", "pms", "concurrency", "ingress_processes")
    return {
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        **{name: vars(arguments)[name] for name in names},
    }


def _exact(measurement: Measurement, count: int) -> bool:
    return measurement.confirmed == measurement.made == count and measurement.duplicates == 0
