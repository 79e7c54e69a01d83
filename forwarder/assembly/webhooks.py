"""Builds the management of webhooks, for any process, and the notifier, for those that hold the secret."""

from contextlib import AsyncExitStack

from forwarder.assembly.backend import Backend, secret_of
from forwarder.notifier.service import Notifier, NotifierParts
from forwarder.notifier.webhooks import Webhooks, WebhooksParts
from forwarder.store.webhooks.log import SqlDeliveryLog
from forwarder.store.webhooks.queue import SqlDeliveryQueue
from forwarder.tenancy.sealing import SecretUnsealer
from forwarder.tenancy.sql.deployment import publish_key
from forwarder.tenancy.sql.endpoints import SqlEndpoints
from forwarder.webhooks.addresses import ResolvedTargets
from forwarder.webhooks.sender import open_sender


async def webhooks_of(backend: Backend) -> Webhooks:
    """The management of webhooks. Raises `NoSealingKey`, `TenancyUnavailable`."""
    return Webhooks(
        WebhooksParts(
            endpoints=SqlEndpoints(backend.engine),
            log=SqlDeliveryLog(backend.engine),
            sealer=await backend.sealer(),
            targets=ResolvedTargets(backend.settings.webhook_addresses),
            clock=backend.clock,
            audit=backend.audit,
        )
    )


async def open_notifier(stack: AsyncExitStack, backend: Backend) -> Notifier:
    """A notifier, whose parts are closed with `stack`. Raises `BadSettings` if the secret of this deployment is not set."""
    settings, clock = backend.settings, backend.clock
    secret = secret_of(settings)
    await publish_key(backend.engine, secret)
    sender = await stack.enter_async_context(
        open_sender(settings.webhook_addresses, clock, seconds=settings.notifier.post_seconds)
    )
    parts = NotifierParts(
        log=backend.log,
        topics=settings.topics,
        queue=SqlDeliveryQueue(backend.engine),
        endpoints=SqlEndpoints(backend.engine),
        unsealer=SecretUnsealer([secret]),
        sender=sender,
        clock=clock,
        settings=settings.notifier,
    )
    return Notifier(parts)
