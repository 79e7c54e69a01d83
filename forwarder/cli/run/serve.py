"""`forwarder ingress`, `worker`, `query`, `notifier`, `housekeeping`, `console`: one stage each, as one or several processes on one
port; and `forwarder simulate`: simulated PMSs to develop and test against, with faults on demand."""

import os
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from typer import Option

from forwarder.operate.output import Failed
from forwarder.process.loading import load
from forwarder.process.supervision import bind, is_child, run_processes, run_until_signalled
from forwarder.settings import Settings, settings_and_logging

Host = Annotated[str | None, Option(help="Address to listen on. [default: FORWARDER_HOST]")]
Port = Annotated[int | None, Option(min=0, max=65535, help="Port to listen on. [default: FORWARDER_PORT]")]
Processes = Annotated[int, Option(min=1, help="How many processes share the port.")]

STAGES: Final[Mapping[str, str]] = {
    "ingress": "forwarder.assembly.ingress:run_ingress",
    "worker": "forwarder.assembly.worker:run_worker",
    "query": "forwarder.assembly.query:run_query",
    "notifier": "forwarder.assembly.notifier:run_notifier",
    "housekeeping": "forwarder.assembly.housekeeping:run_housekeeping",
    "console": "forwarder.console.service:run_console",
}
"""The function that runs each stage, as `load` takes it."""


def _stage(name: str, about: str) -> Callable[..., None]:
    def run(host: Host = None, port: Port = None, processes: Processes = 1) -> None:
        _serve(name, host, port, processes)

    run.__doc__ = about
    return run


ingress = _stage("ingress", "Accept reservation requests over HTTP and publish them to the log.")
worker = _stage("worker", "Push submissions to the PMSs. The port serves health and metrics.")
query = _stage("query", "Serve submissions and reservations over HTTP: their status, records and pages.")
notifier = _stage(
    "notifier", "Post results to customers' endpoints. The port serves the management of webhooks, health and metrics."
)


def housekeeping(host: Host = None, port: Port = None) -> None:
    """Report the backlog as metrics, and remove guests' data whose retention is over. The port serves health and metrics."""
    _serve("housekeeping", host, port, 1)


def console(host: Host = None, port: Port = None) -> None:
    """Serve the operators' console, /console: watch and repair the deployment in a browser."""
    _serve("console", host, port, 1)


def _serve(name: str, host: str | None, port: int | None, processes: int) -> None:
    settings = settings_and_logging()
    several = processes > 1 and not is_child()
    listening = listen(settings, host, port, shared=several)
    if several:
        sys.exit(run_processes([name], count=processes, bound=listening))
    # Imported here: the parent of several processes needs nothing of a stage.
    run_until_signalled(partial(load(STAGES[name]), settings, listening))


def listen(settings: Settings, host: str | None, port: int | None, *, shared: bool = False) -> socket.socket:
    """`bind` to the given address, or the one in the settings. Raises `Failed` if it is not available."""
    host, port = host or settings.environment.host, settings.environment.port if port is None else port
    try:
        return bind(host, port, shared=shared)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        advice = "Choose another with --port or FORWARDER_PORT."
        raise Failed(f"cannot listen on {host}:{port}: {reason}. {advice}") from None


def simulate(
    host: Host = None,
    port: Port = 8085,
    delay: Annotated[float, Option(min=0, help="Milliseconds before each response.")] = 0.0,
    fault_rate: Annotated[float, Option(min=0, max=1, help="Share of requests with the fault.")] = 0.0,
    fault: Annotated[
        str, Option(help="The fault: down, throttle, error500, hang, reset, hang_after_booking, …")
    ] = "down",
    calendars: Annotated[bool, Option(help="Refuse nights that are booked already.")] = False,
    state: Annotated[Path | None, Option(help="A file to remember bookings in.")] = None,
) -> None:
    """Serve simulated PMSs: /NAME/generic, /NAME/website-builder, /NAME/booking-sync/api/v3."""
    settings = settings_and_logging()
    listening, role = listen(settings, host, port), "forwarder.assembly.simulator"
    make_world = load(f"{role}:simulated_world")
    world = make_world(delay_ms=delay, fault=fault, fault_rate=fault_rate, calendars=calendars, state=state)
    run_until_signalled(partial(load(f"{role}:run_simulator"), world, listening))
