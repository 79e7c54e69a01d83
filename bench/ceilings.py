"""What the measuring tools reach by themselves, so that it shows that they are not what is measured."""

import sys
from typing import Any, Final

from bench.flows import Ground, lean_pms
from bench.measure import post
from bench.processes import Role, local_url, port_of, running
from bench.scenarios import Scenario

_SUBMISSIONS: Final = 20_000


async def ceilings(ground: Ground) -> list[str]:
    """The load generator's, and the PMS's."""
    return [await _generator(ground), await _pms(ground)]


async def _generator(ground: Ground) -> str:
    url = local_url()
    role = Role("null-server", [sys.executable, "-m", "bench.lean_http", "--port", port_of(url)], {}, url)
    async with running(role, ground.logs, ground.reaper) as server:
        return _said(
            "The load generator, against a server that does nothing", await _reached(url), server.cpu_seconds()
        )


async def _pms(ground: Ground) -> str:
    async with lean_pms(ground, Scenario("ceiling", "PMS alone"), "ceiling") as (server, url):
        return _said(
            "The PMS, asked by the load generator", await _reached(f"{url}/reservations"), server.cpu_seconds()
        )


async def _reached(url: str) -> dict[str, Any]:
    return await post(url, ["-n", str(_SUBMISSIONS), "-c", "64"], ())


def _said(what: str, reached: dict[str, Any], server_seconds: float) -> str:
    server_us = server_seconds * 1e6 / _SUBMISSIONS
    costs = f"CPU µs a request: generator {reached['cpu_us']:.0f}, server {server_us:.0f} with its start-up"
    return f"{what}: {reached['rate']:,.0f} / s, p99 {reached['p99_ms']} ms ({costs})."
