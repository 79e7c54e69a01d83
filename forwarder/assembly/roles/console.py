"""The console process."""

from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Final

from forwarder.assembly.backend import Backend
from forwarder.assembly.roles.role import Listening, open_role_backend, serve_role
from forwarder.assembly.webhooks import webhooks_of
from forwarder.console.parts import ConsoleParts
from forwarder.http.health import health_routes
from forwarder.http.messages import Routes
from forwarder.operations.accounts import Accounts
from forwarder.operations.show.search import SubmissionSearch
from forwarder.operations.show.standing import Group
from forwarder.process.addresses import is_local
from forwarder.process.loading import load
from forwarder.process.supervision import Stop
from forwarder.settings import BadSettings, Settings
from forwarder.store.delivery_queue import SqlDeliveryLog
from forwarder.store.deployment import BacklogReader, ProcessRegister
from forwarder.store.lists.reader import SqlReader

_PROBER: Final = "forwarder.assembly.commands.probe:open_prober"
_LOOK_UPS: Final = "forwarder.assembly.commands.probe:open_look_ups"
"""Imported on the first request to a PMS."""


async def run_console(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serves the console until `stop`. Raises `BadSettings` where it may not be served."""
    if (refusal := console_refusal(settings, listening)) is not None:
        raise BadSettings(refusal)
    async with AsyncExitStack() as stack:
        backend = await open_role_backend(stack, settings, "console")
        routes = await open_console(backend)
        checks = {"store": SqlReader(backend.engine).ready}
        health = health_routes(checks, metrics_token=settings.metrics_token)
        await serve_role("console", [*routes, *health], backend, listening, stop)


def console_refusal(settings: Settings, listening: Listening) -> str | None:
    """Why the console may not be served on `listening`, with the remedy; None if it may."""
    if find_spec("jinja2") is None:
        return "The console needs packages that are not installed: pip install 'reservation-forwarder[console]'."
    host = listening.getsockname()[0]
    if is_local(host) or settings.tls is not None or settings.environment.console_plaintext:
        return None
    return (
        f"The console would be served in plaintext on {host}, the operators' keys with it: set FORWARDER_TLS_CERTIFICATE_FILE and "
        "FORWARDER_TLS_KEY_FILE, or --host 127.0.0.1, or FORWARDER_CONSOLE_PLAINTEXT=true where a proxy ends TLS."
    )


async def open_console(backend: Backend) -> Routes:
    """The routes of the console."""
    settings = backend.settings
    parts = ConsoleParts(
        access=backend.access,
        clock=backend.clock,
        log=backend.log,
        topics=settings.topics,
        signer=await backend.signer(),
        groups=[
            Group(settings.worker.group, settings.topics.requests),
            Group(settings.notifier.group, settings.topics.results),
        ],
        directory=backend.directory,
        tenancy=backend.tenancy,
        accounts=Accounts(backend.tenancy, backend.sealer, plaintext=settings.environment.plaintext_to_pms),
        overview=backend.overview,
        search=SubmissionSearch(backend.overview, backend.request_ids),
        standing=BacklogReader(backend.engine),
        processes=ProcessRegister(backend.engine),
        prober=lambda: load(_PROBER)(backend),
        look_ups=lambda: load(_LOOK_UPS)(backend),
        deliveries=SqlDeliveryLog(backend.engine),
        repairs=backend.repairs,
        audit=backend.audit,
        trail=backend.trail,
        webhooks=await webhooks_of(backend),
    )
    routes: Routes = load("forwarder.console.app:console_routes")(parts)
    return routes
