"""Builds the checks that compare the topics with the store: is the store an older one, did the topics lose messages?"""

from forwarder.assembly.backend import Backend
from forwarder.oversight.losses import TopicCheck
from forwarder.oversight.restored import RecoveryCheck
from forwarder.reservation.submission import RequestIds
from forwarder.store.retention.purge import SqlPurge
from forwarder.store.submissions.card_keys import SqlCardKeys
from forwarder.store.submissions.places import SqlPlaces
from forwarder.store.submissions.recovery import SqlRecovery
from forwarder.topics.signing import MessageSigner


def recovery_check(backend: Backend, ids: RequestIds, signer: MessageSigner) -> RecoveryCheck:
    """Whether the store lacks what the topics contain."""
    return RecoveryCheck(
        backend.log,
        backend.settings.topics,
        backend.settings.worker.group,
        known=SqlCardKeys(backend.engine).known,
        store=SqlRecovery(backend.engine),
        vouches=ids.vouches,
        purged_before=SqlPurge(backend.engine).purged_before,
        signer=signer,
    )


def topic_check(backend: Backend) -> TopicCheck:
    """Whether the topics lack what the store ingested."""
    return TopicCheck(backend.log, backend.settings.topics.requests, SqlPlaces(backend.engine), backend.clock)
