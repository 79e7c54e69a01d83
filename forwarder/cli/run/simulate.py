"""`forwarder simulate`: simulated PMSs to develop and test against, with faults on demand."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from forwarder.assembly.roles.simulator import run_simulator, simulated_world
from forwarder.assembly.start import settings_and_logging
from forwarder.cli.run.serve import Host, Port, listen
from forwarder.process.supervision import run_until_signalled


def simulate(
    host: Host = None,
    port: Port = 8085,
    delay: Annotated[float, typer.Option(min=0, help="Milliseconds before each response.")] = 0.0,
    fault_rate: Annotated[float, typer.Option(min=0, max=1, help="Share of requests with the fault.")] = 0.0,
    fault: Annotated[
        str, typer.Option(help="The fault: down, throttle, error500, hang, reset, hang_after_booking, …")
    ] = "down",
    calendars: Annotated[bool, typer.Option(help="Refuse nights that are booked already.")] = False,
    state: Annotated[Path | None, typer.Option(help="A file to remember bookings in.")] = None,
) -> None:
    """Serve simulated PMSs: /NAME/generic, /NAME/website-builder, /NAME/booking-sync/api/v3."""
    settings = settings_and_logging()
    listening = listen(host or settings.environment.host, 8085 if port is None else port)
    world = simulated_world(delay_ms=delay, fault=fault, fault_rate=fault_rate, calendars=calendars, state=state)
    run_until_signalled(partial(run_simulator, world, listening))
