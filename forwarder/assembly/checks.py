"""Builds the checks that compare the topics with the store: is the store an older one, did the topics lose messages?"""

from collections.abc import Mapping

from forwarder.assembly.backend import Backend
from forwarder.oversight.losses import TopicCheck
from forwarder.oversight.restored import LOOKED_AT, RecoveryCheck
from forwarder.reservation.submission import RequestIds
from forwarder.store.retention import Purger
from forwarder.store.submissions.card_keys import SqlCardKeys
from forwarder.store.submissions.repairs import Places, StoreRecovery
from forwarder.topics.signing import MessageSigner
from forwarder.worker.parts import Lacking


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


def lacking_of(backend: Backend, check: RecoveryCheck) -> Lacking:
    """What the store lacks, by `check`; also `keys`, if it has others than this process: it is another deployment's store."""

    async def lacking(looked_at: int = LOOKED_AT) -> Mapping[str, int]:
        counts = await check.lacking(looked_at)
        return counts if await backend.has_our_keys() else {**counts, "keys": 1}

    return lacking


def topic_check(backend: Backend) -> TopicCheck:
    """Whether the topics lack what the store ingested."""
    return TopicCheck(backend.log, backend.settings.topics.requests, Places(backend.engine), backend.clock)
