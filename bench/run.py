"""One command that starts everything, measures both flows in turn, prints, and stops everything: `make bench`."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.bento import bento_same
from bench.ceilings import ceilings
from bench.exact import faults
from bench.flows import Flow, Ground
from bench.go_tools import SOURCES
from bench.goref import goref_bare, goref_same
from bench.ground import standing
from bench.measure import Measurement, measure, warm_up
from bench.naive import naive
from bench.ours import forwarder
from bench.outcomes import Stalled
from bench.page import write
from bench.processes import CommandFailed, StartUp
from bench.report import append, progress, sheets
from bench.scenarios import SCENARIOS, Scenario, named
from bench.warm_broker import warm_broker
from tools.servers.ladder import Unavailable
from tools.servers.server_process import ServerFailed

_Start = Callable[[Ground, Scenario], AbstractAsyncContextManager[Flow]]
_FLOWS: Final[Mapping[str, _Start]] = {"forwarder": forwarder, "baseline": naive}
_PEERS: Final[dict[str, _Start]] = {"forwarder": forwarder, "goref-same": goref_same, "goref-bare": goref_bare}
_OF_PEERS: Final = ("accept", "pms-0", "pms-50-256", "lag")
_WIDTH: Final = 160  # of the sheets, where there is no terminal that says


@dataclass(slots=True)
class Results:
    """What a run has found. `wrong`: what should not be, in words."""

    ceilings: list[str] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    start_ups: list[StartUp] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The forwarder's speed, beside a naive flow's.",
        epilog="scenarios:\n" + "\n".join(f"  {each.name:12}{each.title}" for each in SCENARIOS),
    )
    parser.add_argument("--scenario", action="append", choices=[each.name for each in SCENARIOS], help="repeatable")
    parser.add_argument("--all", action="store_true", help="every scenario; the short set where neither is given")
    parser.add_argument("--rounds", type=int, default=3, help="of both flows in turn (%(default)s)")
    parser.add_argument("-n", dest="count", type=int, help="submissions, except of a scenario with a rate")
    parser.add_argument("--flow", choices=[*_FLOWS, "both"], default="both")
    parser.add_argument(
        "--peers",
        action="store_true",
        help="beside the flow written by hand in Go, with a PMS in Go",
    )
    parser.add_argument(
        "--go", type=Path, default=SOURCES, metavar="DIR", help="where the sources in Go are (%(default)s)"
    )
    parser.add_argument("--bento", type=Path, metavar="FILE", help="a binary of Bento: with --peers, it takes part")
    parser.add_argument("--write", action="store_true", help="into docs/explanation/performance.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append one JSON object a measurement")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the processes' logs here")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 1 when something could not be started or did not finish, or when not everything was made exactly once."""
    arguments = _arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    results = Results()
    try:
        with standing(console, arguments.logs, arguments.go if arguments.peers else None, arguments.bento) as ground:
            asyncio.run(_bench(arguments, ground, results, console))
    except (Unavailable, ServerFailed, CommandFailed, Stalled) as failure:
        results.wrong.append(f"broken off: {failure}")
    except KeyboardInterrupt:
        results.wrong.append("broken off by hand")
    _report(arguments, results, console, argv)
    return 1 if results.wrong else 0


def _report(arguments: argparse.Namespace, results: Results, console: Console, argv: Sequence[str] | None) -> None:
    """What was measured, also where something went wrong after that; the page is for runs that went well."""
    found = sheets(results.measurements, results.start_ups)
    for sheet in found:
        sheet.show(console)
    if arguments.write and not results.wrong:
        write(["python", "-m", "bench", *(sys.argv[1:] if argv is None else argv)], results.ceilings, found)
    for wrong in results.wrong:
        print(wrong, file=sys.stderr)


async def _bench(arguments: argparse.Namespace, ground: Ground, results: Results, console: Console) -> None:
    results.ceilings = [*await ceilings(ground), await warm_broker(ground.kafka)]
    console.print(*results.ceilings, sep="\n")
    flows = _FLOWS if ground.go is None else _PEERS if ground.go.bento is None else _PEERS | {"bento-same": bento_same}
    chosen = arguments.scenario or (list(_OF_PEERS) if arguments.peers else None)
    for scenario in named(chosen, every=arguments.all):
        sized = scenario if scenario.rate else replace(scenario, submissions=arguments.count or scenario.submissions)
        names = [name for name in flows if arguments.flow in {name, "both"}]
        if not scenario.beside_baseline:
            names = [name for name in names if name != "baseline"]
        if not names:
            continue
        console.print(f"{scenario.title}: {sized.submissions:,} from {' and '.join(names)} …")
        async for measurement in _rounds(
            sized, {name: flows[name] for name in names}, arguments.rounds, ground, results
        ):
            console.print(f"  {progress(measurement)}")
            results.measurements.append(measurement)
            if arguments.json:
                append(arguments.json, measurement)


async def _rounds(
    scenario: Scenario, started: Mapping[str, _Start], rounds: int, ground: Ground, results: Results
) -> AsyncIterator[Measurement]:
    """All are up at once and take turns, each round in the other order, so that what else the machine does falls on all alike."""
    async with AsyncExitStack() as stack:
        flows = [await stack.enter_async_context(start(ground, scenario)) for start in started.values()]
        for flow in flows:
            await warm_up(flow, scenario)
        for number in range(rounds):
            for flow in flows if number % 2 == 0 else flows[::-1]:
                yield await measure(flow, scenario)
        for flow in flows:
            ready = [flow.processes[name].start_up for name in flow.own]
            results.start_ups += [each for each in ready if each is not None]
            results.wrong += await faults(flow, scenario, results.measurements)
