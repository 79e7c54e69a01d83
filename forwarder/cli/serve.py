"""`forwarder ingress`, `worker`, `query`, `notifier`: one stage each, as one or several processes on one port."""

import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import typer

from forwarder.assembly.roles import Listening, run_ingress, run_notifier, run_query, run_worker
from forwarder.cli.output import Failed
from forwarder.cli.running import settings_and_logging
from forwarder.runtime.supervision import Stop, bind, is_child, run_processes, run_until_signalled
from forwarder.settings import Settings

Host = Annotated[str | None, typer.Option(help="Address to listen on. [default: FORWARDER_HOST]")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on. [default: FORWARDER_PORT]")]
Processes = Annotated[int, typer.Option(min=1, help="How many processes share the port.")]

_Stage = Callable[[Settings, Listening, Stop], Awaitable[None]]


def ingress(host: Host = None, port: Port = None, processes: Processes = 1) -> None:
    """Take reservation requests over HTTP and publish them to the log."""
    _serve("ingress", run_ingress, host, port, processes)


def worker(host: Host = None, port: Port = None, processes: Processes = 1) -> None:
    """Push what was submitted to the PMSs. The port serves health and metrics."""
    _serve("worker", run_worker, host, port, processes)


def query(host: Host = None, port: Port = None, processes: Processes = 1) -> None:
    """Answer what became of submissions over HTTP."""
    _serve("query", run_query, host, port, processes)


def notifier(host: Host = None, port: Port = None, processes: Processes = 1) -> None:
    """Post results to customers' endpoints. The port serves the management of webhooks, health and metrics."""
    _serve("notifier", run_notifier, host, port, processes)


def _serve(name: str, stage: _Stage, host: str | None, port: int | None, processes: int) -> None:
    settings = settings_and_logging()
    listening = listen(host or settings.environment.host, settings.environment.port if port is None else port)
    if processes > 1 and not is_child():
        sys.exit(run_processes([name], count=processes, listening=listening))
    run_until_signalled(partial(stage, settings, listening))


def listen(host: str, port: int) -> Listening:
    """A listening socket there. Raises `Failed` where the address cannot be had."""
    try:
        return bind(host, port)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Failed(
            f"cannot listen on {host}:{port}: {reason}. Choose another with --port or FORWARDER_PORT."
        ) from None
