"""One measurement of one flow: the load, the wait until the last row is CONFIRMED, and what all of that cost."""

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import httpx

from bench.bodies import transaction_id
from bench.cpu import Meter, engines
from bench.flows import Flow
from bench.load import percentile_ms
from bench.outcomes import Outcomes
from bench.processes import output_of
from bench.scenarios import Scenario

WARM_UP: Final = 2_000
_QUIET_SECONDS: Final = 0.5  # after the last outcome: time to publish it


@dataclass(frozen=True, slots=True)
class Measurement:
    """Rates are submissions a second, latencies milliseconds of one request as its sender sees it.

    `end_to_end_rate`: from the first request to the last row CONFIRMED; None where nothing was delivered, as is all after it.
    `made` and `twice` are what the PMS says. `to_pms_p50_ms`, `to_pms_p99_ms`: from when a submission was due to be sent until
    the PMS had it; None where it was not timed.
    `cpu_us`: CPU microseconds a submission, from the first request until all was quiet, by each of the flow's processes, the PMS,
    Kafka, PostgreSQL, the generator and the bench itself; an engine that is no process of this machine's bench is left out.
    `elsewhere`: how many processors were busy with something else all the while.
    """

    scenario: str
    flow: str
    statuses: Mapping[str, int]
    accept_rate: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_us: Mapping[str, float]
    elsewhere: float
    end_to_end_rate: float | None = None
    end_to_end_seconds: float | None = None
    confirmed: int | None = None
    made: int | None = None
    twice: int | None = None
    to_pms_p50_ms: float | None = None
    to_pms_p99_ms: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


async def warm_up(flow: Flow, scenario: Scenario) -> None:
    """Some submissions that are not measured. Raises `Stalled`."""
    async with Outcomes.of(flow, scenario, WARM_UP) as outcomes:
        await _load(flow, scenario, WARM_UP, rate=0)
        await outcomes.wait()


async def measure(flow: Flow, scenario: Scenario) -> Measurement:
    """Raises `Stalled` when the flow does not finish."""
    async with Outcomes.of(flow, scenario, scenario.submissions) as outcomes:
        meter = Meter({**engines(), **{name: [running.pid] for name, running in flow.processes.items()}})
        began = time.monotonic()
        waiting = asyncio.create_task(outcomes.wait())
        load = await _load(flow, scenario, scenario.submissions, scenario.rate)
        ended = await waiting
        await asyncio.sleep(_QUIET_SECONDS)
        spent = meter.spent()
        took = time.monotonic() - began
        counts = await outcomes.counts()
    lags: dict[str, Any] = await _lags(flow, scenario, load) if scenario.timed else {}
    generator = load["cpu_us"] * scenario.submissions / 1e6
    return Measurement(
        scenario=scenario.name,
        flow=flow.name,
        statuses=load["statuses"],
        accept_rate=load["rate"],
        p50_ms=load["p50_ms"],
        p99_ms=load["p99_ms"],
        max_ms=load["max_ms"],
        cpu_us=_a_submission({**spent, "generator": generator}, scenario.submissions),
        elsewhere=round(max(0.0, spent["machine"] - generator - _measured(spent)) / took, 2),
        **lags,
        **(_end_to_end(ended - load["began"], scenario.submissions) | counts if scenario.delivers else {}),
    )


def _measured(spent: Mapping[str, float]) -> float:
    return sum(seconds for name, seconds in spent.items() if name != "machine")


def _a_submission(spent: Mapping[str, float], submissions: int) -> dict[str, float]:
    return {name: round(seconds * 1e6 / submissions, 1) for name, seconds in spent.items() if name != "machine"}


def _end_to_end(seconds: float, submissions: int) -> dict[str, Any]:
    return {"end_to_end_rate": round(submissions / seconds, 1), "end_to_end_seconds": round(seconds, 2)}


async def _lags(flow: Flow, scenario: Scenario, load: Mapping[str, Any]) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=flow.pms_url) as http:
        came = (await http.get("/arrivals", params={"run": load["run"]})).raise_for_status().json()
    due = {
        transaction_id(load["run"], each): load["began"] + each / scenario.rate for each in range(scenario.submissions)
    }
    ranked = sorted(came[submission] - moment for submission, moment in due.items())
    return {"to_pms_p50_ms": percentile_ms(ranked, 0.50), "to_pms_p99_ms": percentile_ms(ranked, 0.99)}


async def _load(flow: Flow, scenario: Scenario, count: int, rate: int) -> dict[str, Any]:
    arguments = ["-n", str(count), "-c", str(scenario.connections), "--rate", str(rate), "--bulk", str(scenario.bulk)]
    return await post(flow.post_url, arguments, flow.headers)


async def post(url: str, arguments: Sequence[str], headers: Sequence[str]) -> dict[str, Any]:
    """What the load generator says of itself."""
    given = [part for header in headers for part in ("-H", header)]
    said = await output_of([sys.executable, "-m", "bench.load", url, *arguments, *given])
    summary: dict[str, Any] = json.loads(said)
    return summary
