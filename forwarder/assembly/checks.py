"""Builds the checks that compare the topics with the store: is the store an older one, did the topics lose messages?"""

from forwarder.assembly.backend import Backend
from forwarder.oversight.losses import TopicCheck
from forwarder.oversight.restored import RecoveryCheck
from forwarder.reservation.submission import RequestIds
from forwarder.store.retention import Purger
from forwarder.store.submissions.card_keys import SqlCardKeys
from forwarder.store.submissions.repairs import Places, StoreRecovery
from forwarder.topics.signing import MessageSigner


def recovery_check(backend: Backend, ids: RequestIds, signer: MessageSigner) -> RecoveryCheck:
    """Whether the store lacks what the topics contain."""
    return RecoveryCheck(
        backend.log,
        backend.settings.topics,
        backend.settings.worker.group,
        known=SqlCardKeys(backend.engine).known,
        store=StoreRecovery(backend.engine),
        vouches=ids.vouches,
        purged_before=Purger(backend.engine).purged_before,
        signer=signer,
    )


def topic_check(backend: Backend) -> TopicCheck:
    """Whether the topics lack what the store ingested."""
    return TopicCheck(backend.log, backend.settings.topics.requests, Places(backend.engine), backend.clock)
