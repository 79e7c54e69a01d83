"""What compares the store with the topics, and brings it up with them after a restore."""

from forwarder.assembly.backend import Backend
from forwarder.operations.recovery_check import RecoveryCheck
from forwarder.reservation.submission import RequestIds
from forwarder.store.submissions.card_keys import SqlCardKeys


def recovery_check(backend: Backend, ids: RequestIds) -> RecoveryCheck:
    """Of the backend's log and store."""
    return RecoveryCheck(
        backend.log,
        backend.settings.topics,
        backend.settings.worker.group,
        known=SqlCardKeys(backend.engine).known,
        statuses=backend.overview.statuses,
        vouches=ids.vouches,
    )
