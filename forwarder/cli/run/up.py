"""`forwarder up`: everything in one process, embedded unless configured otherwise, with simulated PMSs and something to try."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import structlog
import typer

from forwarder.assembly.all_in_one import run_everything
from forwarder.assembly.backend import Backend
from forwarder.assembly.role import Listening
from forwarder.cli.output import say
from forwarder.cli.run.demo_world import DEMO_ENV, WORKSPACE, DemoWorld, prepare_demo_world
from forwarder.cli.run.serve import Host, Port, listen
from forwarder.cli.run.starting import settings_and_logging
from forwarder.process.supervision import Stop, own_url, run_until_signalled
from forwarder.settings import Settings

_log = structlog.get_logger(__name__)


def up(
    host: Host = None,
    port: Port = None,
    demo: Annotated[bool, typer.Option(help="Make the demo workspace on simulated PMSs.")] = True,
) -> None:
    """Run everything in one process: ingress, worker, query, notifier and simulated PMSs on one port."""
    settings = settings_and_logging("warning" if _quiet() else None)
    host = host or settings.environment.host
    listening = listen(host, settings.environment.port if port is None else port)
    run_until_signalled(partial(_run, settings, listening, demo))
    say("Stopped. A second start goes on where this one was.")


def _quiet() -> bool:
    """On a terminal the start-up text is what a person wants to see, not a log line for each reservation."""
    return sys.stderr.isatty() and "FORWARDER_LOG_LEVEL" not in os.environ


async def _run(settings: Settings, listening: Listening, demo: bool, stop: Stop) -> None:
    url = own_url(listening)

    async def ready(backend: Backend) -> None:
        if demo:
            _explain(await prepare_demo_world(backend, url, settings.environment.data_dir))
        else:
            say(f"The forwarder is running on {url}")

    await run_everything(settings, listening, stop, ready)


def _explain(world: DemoWorld) -> None:
    say(
        f"""
The forwarder is running on {world.url}   (data in {world.data_dir}, simulated PMSs; Ctrl-C stops it)

Submit a reservation and wait for the PMS to confirm it:

{world.curl}

Then:
  .venv/bin/forwarder key add --workspace {WORKSPACE} --test
                                             a key that reaches simulated PMSs alone (docs/guides/test-mode.md)
  make demo                                  a short guided tour: a rejection, an outage survived
  . {Path(world.data_dir) / DEMO_ENV}                     FORWARDER_URL, FORWARDER_TOKEN, FORWARDER_WORKSPACE for your own calls
  .venv/bin/forwarder submissions list       what became of everything
  {world.url}/metrics   /readyz   /healthz
"""
    )
