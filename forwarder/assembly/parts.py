"""Parts that several processes and commands share: the management of webhooks, and the checks that compare the topics with the
store (is the store an older one, did the topics lose messages?)."""

from forwarder.assembly.backend import Backend
from forwarder.notifier.webhooks import Webhooks
from forwarder.oversight.losses import TopicCheck
from forwarder.oversight.restored import RecoveryCheck
from forwarder.reservation.submission import RequestIds
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.retention import Purger
from forwarder.store.submissions.card_keys import CardKeys
from forwarder.store.submissions.repairs import Places, StoreRecovery
from forwarder.tenancy.sql.endpoints import Endpoints
from forwarder.topics.codec import MessageSigner
from forwarder.webhooks.addresses import ResolvedTargets


async def webhooks_of(backend: Backend) -> Webhooks:
    """The management of webhooks. Raises as `Backend.webhook_sealer`."""
    settings = backend.settings
    return Webhooks(
        registry=Endpoints(backend.engine),
        log=Deliveries(backend.engine),
        sealer=await backend.webhook_sealer(),
        targets=ResolvedTargets(settings.webhook_addresses, resolves=settings.environment.webhook_proxy is None),
        clock=backend.clock,
        audit=backend.audit,
    )


def recovery_check(backend: Backend, ids: RequestIds, signer: MessageSigner) -> RecoveryCheck:
    """Whether the store lacks what the topics contain."""
    return RecoveryCheck(
        backend.log,
        backend.settings.topics,
        backend.settings.worker.group,
        known=CardKeys(backend.engine).known,
        store=StoreRecovery(backend.engine),
        vouches=ids.vouches,
        purged_before=Purger(backend.engine).purged_before,
        signer=signer,
    )


def topic_check(backend: Backend) -> TopicCheck:
    """Whether the topics lack what the store ingested."""
    return TopicCheck(backend.log, backend.settings.topics.requests, Places(backend.engine), backend.clock)
