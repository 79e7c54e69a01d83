"""Builds the management of webhooks, for any process, and the notifier, for those that hold the secret."""

from contextlib import AsyncExitStack

from forwarder.assembly.backend import Backend
from forwarder.assembly.checks import topic_check
from forwarder.assembly.secrets import notifier_pairs, require_notifier_key
from forwarder.notifier.service import Notifier, NotifierParts
from forwarder.notifier.webhooks import Webhooks, WebhooksParts
from forwarder.settings import BadSettings
from forwarder.store.delivery_queue import SqlDeliveryLog, SqlDeliveryQueue
from forwarder.tenancy.sealing import KeyPairUnsealer
from forwarder.tenancy.sql.endpoints import SqlEndpoints
from forwarder.webhooks.addresses import ResolvedTargets
from forwarder.webhooks.sender import open_sender
from forwarder.webhooks.traced import TracedSender


async def webhooks_of(backend: Backend) -> Webhooks:
    """The management of webhooks. Raises as `Backend.webhook_sealer`."""
    return Webhooks(
        WebhooksParts(
            endpoints=SqlEndpoints(backend.engine),
            log=SqlDeliveryLog(backend.engine),
            sealer=await backend.webhook_sealer(),
            targets=ResolvedTargets(
                backend.settings.webhook_addresses, resolves=backend.settings.webhook_proxy is None
            ),
            clock=backend.clock,
            audit=backend.audit,
        )
    )


async def open_notifier(stack: AsyncExitStack, backend: Backend) -> Notifier:
    """A notifier, whose parts are closed with `stack`. Raises `BadSettings` without its key or the deployment's secret,
    `UnknownSecret` if that belongs to another deployment."""
    settings, clock = backend.settings, backend.clock
    pairs = notifier_pairs(settings, backend.keyring)
    if not pairs:
        raise BadSettings(
            "FORWARDER_NOTIFIER_KEY is missing: it opens the secrets of webhooks. `forwarder secret status --notifier-key`, run "
            "with FORWARDER_SECRET_KEY set, prints it."
        )
    await require_notifier_key(backend.engine, pairs)
    sender = await stack.enter_async_context(
        open_sender(
            settings.webhook_addresses, clock, seconds=settings.notifier.post_seconds, proxy=settings.webhook_proxy
        )
    )
    parts = NotifierParts(
        log=backend.log,
        topics=settings.topics,
        queue=SqlDeliveryQueue(backend.engine),
        endpoints=SqlEndpoints(backend.engine),
        unsealer=KeyPairUnsealer(pairs),
        sender=sender if backend.tracer is None else TracedSender(sender, backend.tracer),
        clock=clock,
        settings=settings.notifier,
        on_gap=topic_check(backend).note,
    )
    return Notifier(parts)
