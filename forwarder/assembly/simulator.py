"""The simulated PMSs as a process of their own."""

from pathlib import Path
from typing import get_args

import structlog
from pydantic import ValidationError

from forwarder.assembly.role import Listening
from forwarder.http.server import serve
from forwarder.process.clock import SystemClock
from forwarder.process.loading import of_kit
from forwarder.process.supervision import Stop
from forwarder.settings import BadSettings
from forwarder.simulator.app import SimulatorApp, simulator_app
from forwarder.simulator.faults import Faults, Mode
from forwarder.simulator.world import World

_log = structlog.get_logger(__name__)


def simulated_world(*, delay_ms: float, fault: str, fault_rate: float, calendars: bool, state: Path | None) -> World:
    """The simulated PMSs of `forwarder simulate`. Raises `BadSettings` if there is no such fault."""
    wanted = {"delay_ms": delay_ms, "mode": fault if fault_rate else "none", "rate": fault_rate}
    try:
        faults = Faults.model_validate(wanted)
    except ValidationError:
        raise BadSettings(f"--fault must be one of {', '.join(get_args(Mode))}; it is {fault!r}.") from None
    return World(SystemClock(), calendars=calendars, journal=state, faults=faults)


def simulated_pms(world: World) -> SimulatorApp:
    """The simulated PMSs over `world`: with the vendors' APIs where forwarder-pms-kit is installed, else without them."""
    app: SimulatorApp = (of_kit("simulators:simulator_app") or simulator_app)(world)
    return app


async def run_simulator(world: World, listening: Listening, stop: Stop) -> None:
    _log.info("process.listening", role="simulate", port=listening.getsockname()[1])
    with world:
        await serve(simulated_pms(world), listening, stop, grace_seconds=1.0)
