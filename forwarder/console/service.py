"""The console's process, and the parts that its pages use."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from forwarder.assembly.backend import Backend
from forwarder.assembly.parts import webhooks_of
from forwarder.assembly.roles.role import Listening, open_role_backend, reading_health, serve_role
from forwarder.http.messages import Routes
from forwarder.notifier.webhooks import Webhooks
from forwarder.operate.deployment.status import StatusReader
from forwarder.process.addresses import is_local
from forwarder.process.loading import load
from forwarder.process.supervision import Stop
from forwarder.settings import BadSettings, Settings
from forwarder.topics.signing import MessageSigner

AWAY_SECONDS: Final = 5.0
"""How long a page waits for Kafka or the database before it shows the rest."""


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """What the pages use. `status` waits for Kafka and the database for `AWAY_SECONDS`."""

    backend: Backend
    signer: MessageSigner
    status: StatusReader
    webhooks: Webhooks


async def run_console(settings: Settings, listening: Listening, stop: Stop) -> None:
    """Serves the console until `stop`. Raises `BadSettings` where it may not be served."""
    if (refusal := console_refusal(settings, listening)) is not None:
        raise BadSettings(refusal)
    async with AsyncExitStack() as stack:
        backend = await open_role_backend(stack, settings, "console")
        routes = await open_console(backend)
        await serve_role("console", routes, backend, listening, stop, health=reading_health(backend))


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
    status = StatusReader(backend.settings, backend.log, backend.engine, backend.clock, seconds=AWAY_SECONDS)
    parts = ConsoleParts(backend, await backend.signer(), status, await webhooks_of(backend))
    # Imported here: it needs the packages of the extra `console`.
    routes: Routes = load("forwarder.console.app:console_routes")(parts)
    return routes
