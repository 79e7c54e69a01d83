"""Whether cost stays flat as reservations grow: `python -m bench.growth --submissions 1000000`.

Starts what `python -m bench` starts, sends all of it in one piece at PMS 0 ms, no faster than it is delivered, and prints a row for
each tenth: reservations a second, CPU µs a reservation by process, the memory of each of ours. Up to 4,000 are accepted and not
made yet: by so many the ingress is ahead of the others in the first tenth, and has less to do in the last. All is then read back: a
run fails where not all were accepted, made once, CONFIRMED, and shown once. A million take some ten minutes and 12 GB of disk, free
again at the end.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
from pydantic_core import from_json
from rich.console import Console
from rich.table import Table

from bench.cpu import Meter, descendants, engines
from bench.flows import Flow, Ground
from bench.ground import judged
from bench.measure import WARM_UP, post, warm_up
from bench.ours import forwarder
from bench.outcomes import Outcomes, Stalled
from bench.scenarios import Scenario, named
from bench.warm_broker import warm_broker
from tools.servers.process_memory import megabytes

_PARTS: Final = 10
_AHEAD: Final = 4_000
_LOOK_SECONDS: Final = 0.2
_STALL_SECONDS: Final = 120.0
_WIDTH: Final = 160  # of the table, where there is no terminal that says


@dataclass(frozen=True, slots=True)
class Reading:
    """How far the run is: what was `made`, and at what time; CPU seconds since its begin and megabytes now, by process."""

    made: int
    at: float
    cpu: Mapping[str, float]
    memory: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Part:
    """What it took to get from one reading to the next: `cpu_us` is of each reservation that was made between them, `busy` how many
    processors were, with whatever runs on the machine."""

    made: int
    rate: float
    cpu_us: Mapping[str, float]
    memory: Mapping[str, float]
    busy: float


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="What cost does as reservations grow.")
    parser.add_argument("--submissions", type=int, default=1_000_000, help="in one piece (%(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="(%(default)s)")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the processes' logs here")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """As `judged`: all is to be made exactly once."""
    arguments = _arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    scenario = replace(
        named(["pms-0"], every=False)[0], submissions=arguments.submissions, connections=arguments.connections
    )
    return judged(console, arguments.logs, lambda ground: _grow(ground, scenario, console))


async def _grow(ground: Ground, scenario: Scenario, console: Console) -> list[str]:
    """Run and show it; what is not as it should be, in words."""
    console.print(await warm_broker(ground.kafka))
    async with forwarder(ground, scenario) as flow:
        await warm_up(flow, scenario)
        async with Outcomes.of(flow, scenario, scenario.submissions) as outcomes:
            arguments = ["-n", str(scenario.submissions), "-c", str(scenario.connections)]
            arguments += [
                "--count-url",
                f"{flow.pms_url}/count",
                "--ahead",
                str(min(_AHEAD, scenario.submissions // 20)),
            ]
            sending = asyncio.create_task(post(flow.post_url, arguments, flow.headers))
            readings: list[Reading] = []
            async for reading in _readings(flow, scenario.submissions, sending):
                readings.append(reading)
                console.print(f"  {reading.made:,} of {scenario.submissions:,}")
            sent = await sending
            await outcomes.wait()
            found: dict[str, Any] = {"accepted": sent["statuses"].get("202", 0), **await outcomes.counts()}
        console.print(table([between(one, other) for one, other in pairwise(readings)]))
        console.print(f"generator: {sent['cpu_us']} µs of CPU a submission; answered within {sent['p99_ms']} ms (p99)")
        return faults({**found, "shown": await _shown(flow) - WARM_UP}, scenario.submissions)


async def _readings(flow: Flow, submissions: int, sending: asyncio.Task[Any]) -> AsyncIterator[Reading]:
    """One at the begin, and one after each tenth. Raises `Stalled`, and what sending raised."""
    meter = Meter({**engines(), **{name: [running.pid] for name, running in flow.processes.items()}})
    async with httpx.AsyncClient() as http:
        before = await _made(http, flow)
        yield _reading(flow, meter, 0)
        for part in range(1, _PARTS + 1):
            moved, seen = time.monotonic(), 0
            while (made := await _made(http, flow) - before) < submissions * part // _PARTS:
                if sending.done():
                    sending.result()
                moved = time.monotonic() if made > seen else moved
                seen = made
                if time.monotonic() - moved > _STALL_SECONDS:
                    raise Stalled(f"{made:,} of {submissions:,} made")
                await asyncio.sleep(_LOOK_SECONDS)
            yield _reading(flow, meter, made)


async def _made(http: httpx.AsyncClient, flow: Flow) -> int:
    return int((await http.get(f"{flow.pms_url}/count")).raise_for_status().text)


def _reading(flow: Flow, meter: Meter, made: int) -> Reading:
    memory = {name: sum(map(megabytes, descendants(flow.processes[name].pid))) for name in flow.own}
    return Reading(made, time.monotonic(), meter.spent(), memory)


def between(one: Reading, other: Reading) -> Part:
    """The part from one reading to the next."""
    made, seconds = other.made - one.made, other.at - one.at
    spent = {name: used - one.cpu[name] for name, used in other.cpu.items()}
    cpu_us = {name: used / made * 1e6 for name, used in spent.items() if name not in {"machine", "bench"}}
    return Part(other.made, made / seconds, cpu_us, other.memory, spent["machine"] / seconds)


def table(parts: Sequence[Part]) -> Table:
    """A row a part, and how the last compares with the first."""
    first, last = parts[0], parts[-1]
    shown = Table(title="CPU µs a reservation, and megabytes of each of ours, as reservations grow")
    for name in ("made", "1/s", *last.cpu_us, *(f"{name}, MB" for name in last.memory), "processors busy"):
        shown.add_column(name, justify="right")
    for part in parts:
        figures = (part.rate, *part.cpu_us.values(), *part.memory.values())
        shown.add_row(f"{part.made:,}", *(f"{figure:,.0f}" for figure in figures), f"{part.busy:.2f}")
    ratios = [_ratio(last.rate, first.rate)]
    ratios += [_ratio(last.cpu_us[name], first.cpu_us[name]) for name in last.cpu_us]
    ratios += [_ratio(last.memory[name], first.memory[name]) for name in last.memory]
    shown.add_row("last to first", *ratios, _ratio(last.busy, first.busy))
    return shown


def _ratio(last: float, first: float) -> str:
    return f"{last / first:.2f}" if first else ""


def faults(found: Mapping[str, int], submissions: int) -> list[str]:
    """What is not as it should be, in words: nothing twice, and of all else as many as were sent."""
    wanted = {name: 0 if name == "twice" else submissions for name in found}
    return [f"{name}: {found[name]:,}, not {right:,}" for name, right in wanted.items() if found[name] != right]


async def _shown(flow: Flow) -> int:
    """How many reservations a reader sees who follows `next` to the last page. Raises `Stalled` where one comes again: ids only
    ever rise, so that none has to be remembered."""
    assert flow.list_url is not None
    count, last, cursor = 0, 0, "1"
    async with httpx.AsyncClient(headers=dict(header.split(": ", 1) for header in flow.headers), timeout=30) as http:
        while cursor:
            answer = await http.get(flow.list_url, params={"limit": "200", "cursor": cursor})
            page = from_json(answer.raise_for_status().content)
            for item in page["data"]:
                if item["id"] <= last:
                    raise Stalled(f"the pages show {item['id']} after {last}")
                last = item["id"]
            count += len(page["data"])
            cursor = page["meta"]["cursors"]["next"]
    return count


if __name__ == "__main__":
    sys.exit(main())
