"""Fast is worth nothing where it is wrong: whether the forwarder accepted, made, stored and shows every submission exactly once."""

from collections.abc import Sequence

import httpx

from bench.flows import Flow
from bench.measure import WARM_UP, Measurement
from bench.scenarios import Scenario


async def faults(flow: Flow, scenario: Scenario, measurements: Sequence[Measurement]) -> list[str]:
    """What is not as it should be after these rounds, in words. The baseline is not judged: it promises nothing."""
    if flow.name != "forwarder":
        return []
    rounds = [each for each in measurements if (each.scenario, each.flow) == (scenario.name, flow.name)]
    found = [fault for each in rounds for fault in _of_round(each, scenario)]
    shown = await _shown(flow)
    wanted = WARM_UP + scenario.submissions * len(rounds)
    if shown not in {None, wanted}:
        found.append(f"{scenario.name}: a reader of the pages sees {shown:,} of {wanted:,}")
    return found


def _of_round(measurement: Measurement, scenario: Scenario) -> list[str]:
    wanted = {"accepted": scenario.submissions}
    seen: dict[str, int | None] = {"accepted": measurement.statuses.get("200" if scenario.bulk else "202", 0)}
    if scenario.delivers:
        wanted |= {"made": scenario.submissions, "confirmed": scenario.submissions, "twice": 0}
        seen |= {"made": measurement.made, "confirmed": measurement.confirmed, "twice": measurement.twice}
    return [
        f"{scenario.name}: {name} {seen[name]}, not {right}" for name, right in wanted.items() if seen[name] != right
    ]


async def _shown(flow: Flow) -> int | None:
    """How many different reservations a reader sees who follows `next` from the first page to the last; None where none can."""
    if flow.list_url is None:
        return None
    seen: set[int] = set()
    async with httpx.AsyncClient(headers=dict(header.split(": ", 1) for header in flow.headers), timeout=30) as http:
        parameters = {"limit": "200"}
        while True:
            page = (await http.get(flow.list_url, params=parameters)).raise_for_status().json()
            seen.update(item["id"] for item in page["data"])
            cursor = page["meta"]["cursors"]["next"]
            if not cursor:
                return len(seen)
            parameters["cursor"] = cursor
