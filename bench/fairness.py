"""What one hostile workspace costs another: `python -m bench.fairness`.

Ingress, query and the webhooks' API run in one process, on a log and a store in memory. The attacks of
`tests/support/stages/hostile.py` come from this process, each alone and then all at once. For each: how many of the other
workspace's requests were accepted, how long they took, and how much memory the process under attack had at the most. Compare with
`alone`.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from pathlib import Path

from forwarder.http.health import Health, health_routes
from forwarder.http.server import HttpApp, serve
from forwarder.observability.logging import configure_logging
from forwarder.process.supervision import Stop, bind
from tests.support.stages.hostile import ATTACKS, SETTINGS, Victim, attack, fill
from tests.support.stages.http_stages import stages

_RAMP_SECONDS = 2.0
_WIDTH = 24


async def _serve() -> None:
    """Until the process is ended. Prints its port."""
    async with stages(SETTINGS, max_waiting=10_000) as house:
        fill(house)
        listening = bind("127.0.0.1", 0)
        app = HttpApp([*house.routes, *health_routes(Health())], house.clock, admission=house.admission)
        print(listening.getsockname()[1], flush=True)
        await serve(app, listening, Stop(), grace_seconds=1)


def _megabytes(process: int, field: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(field))


def _started() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "bench.fairness", "--serve"], stdout=subprocess.PIPE)


async def _measure(names: tuple[str, ...], rounds: int) -> dict[str, object]:
    """A process of its own for each row, so that its memory is that row's."""
    with _started() as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            hostile = asyncio.create_task(attack(port, *names))
            await asyncio.sleep(_RAMP_SECONDS if names else 0)
            victim = Victim(port)
            await victim.run(rounds)
            hostile.cancel()
            await asyncio.gather(hostile, return_exceptions=True)
            times = statistics.quantiles(victim.seconds, n=100)
            good = sum(count for status, count in victim.statuses.items() if status.endswith((" 200", " 202")))
            return {
                "attack": ", ".join(names) if len(names) < len(ATTACKS) else "all at once",
                "answered": f"{good} of {victim.statuses.total()}",
                "p50_ms": round(times[49] * 1000, 1),
                "p99_ms": round(times[98] * 1000, 1),
                "peak_mb": _megabytes(process.pid, "VmHWM"),
            }
        finally:
            process.kill()


async def _run(rounds: int, *, as_json: bool) -> None:
    rows = [await _measure(names, rounds) for names in ((), *((name,) for name in ATTACKS), tuple(ATTACKS))]
    rows[0]["attack"] = "alone"
    if as_json:
        print(json.dumps(rows))
        return
    print(f"{'attack':{_WIDTH}} {'answered':>14} {'p50 ms':>8} {'p99 ms':>8} {'peak MB':>8}")
    for row in rows:
        print(
            f"{row['attack']:{_WIDTH}} {row['answered']:>14} {row['p50_ms']:>8} {row['p99_ms']:>8} {row['peak_mb']:>8}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=100, help="of a submission, a page and a look at health, on 4 connections"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    configure_logging("error", "json")
    asyncio.run(_serve() if asked.serve else _run(asked.rounds, as_json=asked.json))


if __name__ == "__main__":
    main()
