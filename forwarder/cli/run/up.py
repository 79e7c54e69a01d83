"""`forwarder up`: everything in one process, embedded unless configured otherwise, with simulated PMSs and something to try."""

import os
import shutil
import sys
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from dotenv import dotenv_values
from typer import Option

from forwarder.assembly.backend import Backend, alone_in
from forwarder.assembly.housekeeping import housekeeping
from forwarder.assembly.ingress import open_ingress
from forwarder.assembly.notifier import open_notifier, open_webhook_api
from forwarder.assembly.query import open_query
from forwarder.assembly.role import Listening, open_outcomes, open_role_backend, serve_role
from forwarder.assembly.simulator import simulated_pms
from forwarder.assembly.worker import open_worker, worker_health
from forwarder.cli.run.serve import Host, Port, listen
from forwarder.console.service import console_refusal, open_console
from forwarder.http.contract import contract_routes
from forwarder.http.server import HttpApp, serve
from forwarder.operate.output import say
from forwarder.process.addresses import is_local
from forwarder.process.supervision import Stop, bind, own_url, run_until_signalled, side_by_side
from forwarder.settings import Embedded, Settings, settings_and_logging
from forwarder.simulator.app import simulator_below
from forwarder.simulator.world import World
from forwarder.tenancy.port import ALL_SCOPES, Account, AlreadyExists
from forwarder.tenancy.sealing import with_credential

WORKSPACE = "demo"
DEMO_ENV = "demo.env"
_SIMULATOR = "/simulator"
_ACCOUNTS = {
    "demo-generic": ("generic", "generic"),
    "demo-booking-sync": ("booking-sync", "booking-sync/api/v3"),
    "demo-website-builder": ("website-builder", "website-builder"),
}


def curl_command(url: str, token: str) -> str:
    """A curl command that works when pasted, and again when pasted again."""
    arrival = datetime.now(UTC).date() + timedelta(days=30)
    departure = arrival + timedelta(days=4)
    return f"""curl -s {url}/api/v1/vrs/reservations \\
  -H 'Authorization: Bearer {token}' \\
  -H 'workspaceId: {WORKSPACE}' -H 'integrationAccountId: demo-generic' \\
  -H 'Content-Type: application/json' -H "Idempotency-Key: \\"try-$(date +%s)\\"" \\
  -d '{{"propertyId": 1001, "roomId": "room-'$(date +%s)'", "arrivalDate": "{arrival}", "departureDate": "{departure}",
       "guest": {{"firstName": "Maria", "lastName": "Gonzalez", "email": "maria@example.com"}},
       "numberOfGuests": 2, "totalPrice": 480.50, "currency": "EUR"}}'"""


def up(
    host: Host = None,
    port: Port = None,
    demo: Annotated[bool, Option(help="Make the demo workspace on simulated PMSs.")] = True,
) -> None:
    """Run everything in one process: ingress, worker, query, notifier, housekeeping, console and simulated PMSs on one port."""
    # People want to see the start-up text on a terminal, not a log line for each reservation.
    quiet = sys.stderr.isatty() and "FORWARDER_LOG_LEVEL" not in os.environ
    settings = settings_and_logging("warning" if quiet else None)
    listening = listen(settings, host, port)
    run_until_signalled(partial(_run, settings, listening, demo))
    say("Stopped. The next start continues from here.")


def _started_as() -> str:
    """How to call this same forwarder's commands from the current directory."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{Path(sys.executable).name} -m forwarder"
    found = shutil.which(program.name)
    if found is not None and program.exists() and Path(found).samefile(program):
        return program.name
    return os.path.relpath(program) if program.is_relative_to(Path.cwd()) else str(program)


def _explain(url: str, token: str, data_dir: Path, console: str, forwarder: str) -> None:
    # Only a checkout has the tour.
    tour = "  make demo\n      a short guided tour: a rejection, an outage survived\n"
    say(
        f"""
The forwarder is running on {url}   (data in {data_dir}, simulated PMSs; Ctrl-C stops it)
API: {url}/docs   (guides, samples, and a form to try each operation with the token below)
{console}

Submit a reservation and wait for the PMS to confirm it:

{curl_command(url, token)}

Then:
  {forwarder} submissions list
      what became of everything
  {forwarder} key add --workspace {WORKSPACE} --test
      a key that reaches simulated PMSs alone
{tour if Path("clients/python/examples/demo.py").exists() else ""}  . {data_dir / DEMO_ENV}
      FORWARDER_URL, FORWARDER_TOKEN, FORWARDER_WORKSPACE for your own calls
  {url}/metrics
      also /readyz   /healthz   /openapi.json   /asyncapi.yaml
"""
    )


async def _prepare_demo(backend: Backend, url: str, simulator: str, data_dir: Path) -> str:
    """Creates the missing workspace and accounts, points the accounts at `simulator`, and writes `demo.env` (mode 0600) with the
    returned token, the same as at the last start if its key is still valid."""
    known = {account.id: account for account in await backend.tenancy.accounts(WORKSPACE)}
    if not known:
        with suppress(AlreadyExists):
            await backend.tenancy.add_workspace(WORKSPACE)
    for account_id, (kind, path) in _ACCOUNTS.items():
        base_url, there = f"{simulator}/{account_id}/{path}", known.get(account_id)
        if there is not None and there.base_url == base_url:
            continue
        account = replace(there or Account(account_id, WORKSPACE, kind, base_url, ""), base_url=base_url)
        # The address is part of the seal: a changed address needs a new one.
        account = with_credential(account, "simulated", await backend.sealer())
        if there is None:
            await backend.tenancy.put_account(account)
        else:
            await backend.tenancy.change_account(there, account)
    file = data_dir / DEMO_ENV
    token = dotenv_values(file).get("FORWARDER_TOKEN") if file.exists() else None
    if not token or await backend.directory.key(token) is None:
        _, token = await backend.tenancy.add_key(WORKSPACE, scopes=ALL_SCOPES)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    exported = {"FORWARDER_URL": url, "FORWARDER_TOKEN": token, "FORWARDER_WORKSPACE": WORKSPACE}
    file.write_text("".join(f"export {name}={value}\n" for name, value in exported.items()), encoding="utf-8")
    return token


async def _run(settings: Settings, listening: Listening, demo: bool, stop: Stop) -> None:
    """All stages and simulated PMSs in this process, on one port, until `stop`. Says how to use them once they run."""
    url, refused = own_url(listening, tls=settings.tls is not None), console_refusal(settings, listening)
    # Plain HTTP to the process's own simulator, on a loopback address: TLS would need its certificate to be trusted.
    here = settings.tls is None and is_local(urlsplit(own_url(listening)).hostname or "")
    aside = None if here else bind("127.0.0.1", 0)
    simulator = own_url(aside or listening) + _SIMULATOR
    environment = settings.environment
    if environment.simulator_url is None:  # test keys use this process's own simulator
        environment = environment.model_copy(update={"simulator_url": simulator})
        settings = replace(settings, environment=environment)
    # Kafka and PostgreSQL serve many processes.
    alone = alone_in(settings.backend.data_dir) if isinstance(settings.backend, Embedded) else nullcontext()
    with alone, aside or nullcontext():
        async with AsyncExitStack() as stack:
            backend = await open_role_backend(stack, settings, "up")
            await backend.create_topics()
            publisher = await stack.enter_async_context(backend.log.publisher())
            outcomes = await open_outcomes(stack, backend, stop)
            ingress = await open_ingress(stack, backend, publisher, outcomes, stop)
            worker = await open_worker(stack, backend, publisher)
            notifier = await open_notifier(stack, backend)
            journal = environment.data_dir / "simulator.jsonl"
            world = stack.enter_context(World(backend.clock, calendars=False, journal=journal))
            reading = [*await open_query(backend, outcomes), *await open_webhook_api(stack, backend, stop)]
            operators = [] if refused else await open_console(backend)
            routes = [*ingress, *reading, *contract_routes(), *operators]
            simulated = simulator_below(_SIMULATOR, simulated_pms(world))
            if aside is None:
                routes.append(simulated)
            else:
                serving = serve(HttpApp([simulated], backend.clock), aside, stop, grace_seconds=1.0)
                await stack.enter_async_context(side_by_side(serving, stop))
            async with (
                side_by_side(worker.run(stop), stop),
                side_by_side(notifier.run(stop), stop),
                side_by_side(housekeeping(backend, stop), stop),
            ):
                program, data_dir = _started_as(), environment.data_dir
                sign_in = f"a key to sign in: {program} key add --workspace … --scope operate"
                token = await _prepare_demo(backend, url, simulator, data_dir) if demo else None
                if token is not None:
                    sign_in = f"sign in with FORWARDER_TOKEN of {data_dir / DEMO_ENV}"
                console = refused or f"Console: {url}/console   ({sign_in})"
                if token is None:
                    say(f"The forwarder is running on {url}\n{console}")
                else:
                    _explain(url, token, data_dir, console, program)
                health = worker_health(backend, worker, publisher)
                await serve_role("up", routes, backend, listening, stop, health=health, throttles=worker.throttles)
