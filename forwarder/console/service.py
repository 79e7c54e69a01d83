"""The console's process, and the parts that its pages use."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from forwarder.assembly.backend import Backend
from forwarder.assembly.parts import webhooks_of
from forwarder.assembly.roles.role import Listening, open_role_backend, reading_health, serve_role
from forwarder.http.messages import Routes
from forwarder.notifier.webhooks import Webhooks
from forwarder.operate.deployment.status import StatusReader
from forwarder.operate.submissions.look_up import LookUps, open_look_ups
from forwarder.operate.submissions.search import SubmissionSearch
from forwarder.operate.tenants.accounts import Accounts, accounts_of
from forwarder.operate.tenants.probe import Prober, open_prober
from forwarder.oversight.audit import Audit
from forwarder.oversight.backlog import Group
from forwarder.process.addresses import is_local
from forwarder.process.clock import Clock
from forwarder.process.loading import load
from forwarder.process.supervision import Stop
from forwarder.settings import BadSettings, Settings
from forwarder.store.audit_trail import AuditTrail
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.deployment import BacklogReader, ProcessRegister
from forwarder.tenancy.access import Access
from forwarder.tenancy.port import Directory, TenancyAdmin
from forwarder.topics.port import Log, Topics
from forwarder.topics.signing import MessageSigner

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview
    from forwarder.store.submissions.repairs import Repairs


AWAY_SECONDS: Final = 5.0
"""How long a page waits for Kafka or the database before it shows the rest."""


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """The ports of the console."""

    access: Access
    clock: Clock
    log: Log
    topics: Topics
    signer: MessageSigner
    groups: Sequence[Group]
    directory: Directory
    tenancy: TenancyAdmin
    accounts: Accounts
    overview: "Overview"
    search: SubmissionSearch
    backlog: BacklogReader
    status: StatusReader
    processes: ProcessRegister
    prober: Callable[[], AbstractAsyncContextManager[Prober]]
    look_ups: Callable[[], AbstractAsyncContextManager[LookUps]]
    deliveries: Deliveries
    repairs: "Repairs"
    audit: Audit
    trail: AuditTrail
    webhooks: Webhooks
    grafana_url: str


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
    settings = backend.settings
    status = StatusReader(settings, backend.log, backend.engine, backend.clock, seconds=AWAY_SECONDS)
    parts = ConsoleParts(
        access=backend.access,
        clock=backend.clock,
        log=backend.log,
        topics=settings.topics,
        signer=await backend.signer(),
        groups=status.groups,
        directory=backend.directory,
        tenancy=backend.tenancy,
        accounts=accounts_of(backend),
        overview=backend.overview,
        search=SubmissionSearch(backend.overview, backend.request_ids),
        backlog=BacklogReader(backend.engine),
        status=status,
        processes=ProcessRegister(backend.engine),
        prober=lambda: open_prober(backend),
        look_ups=lambda: open_look_ups(backend),
        deliveries=Deliveries(backend.engine),
        repairs=backend.repairs,
        audit=backend.audit,
        trail=backend.trail,
        webhooks=await webhooks_of(backend),
        grafana_url=settings.environment.grafana_url,
    )
    # Imported here: it needs the packages of the extra `console`.
    routes: Routes = load("forwarder.console.app:console_routes")(parts)
    return routes
