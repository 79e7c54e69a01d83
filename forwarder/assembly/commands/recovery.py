"""Builds the recovery: compares the store with the topics, and brings it up to date after a restore."""

from datetime import datetime

from forwarder.assembly.backend import Backend
from forwarder.operations.connections import target_of
from forwarder.operations.recovery.check import RecoveryCheck
from forwarder.operations.recovery.recover import Recovered, Recovery, RecoveryParts
from forwarder.pms.port import AccountConnection
from forwarder.pms.registry import registered
from forwarder.reservation.submission import RequestIds
from forwarder.store.retention import Purger
from forwarder.store.submissions.card_keys import SqlCardKeys
from forwarder.store.submissions.recorder import Recorder
from forwarder.store.submissions.repairs import StoreRecovery
from forwarder.tenancy.port import Account
from forwarder.topics.signing import MessageSigner


def recovery_check(backend: Backend, ids: RequestIds, signer: MessageSigner) -> RecoveryCheck:
    """The check for the backend's log and store."""
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


async def recovery(backend: Backend, *, since: datetime | None, dry_run: bool) -> Recovered:
    """Runs a `Recovery`: see `Recovery.run`."""
    kinds = registered().kinds

    def target(account: Account) -> str:
        connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
        try:
            can = kinds[account.kind](connection, backend.clock).capabilities
        except (LookupError, ValueError):  # no such kind here, or not with these options
            return ""
        return target_of(account.kind, account.base_url, None, can).text

    async with backend.log.publisher() as publisher:
        parts = RecoveryParts(
            log=backend.log,
            topics=backend.settings.topics,
            publisher=publisher,
            recorder=Recorder(backend.engine),
            store=StoreRecovery(backend.engine),
            directory=backend.directory,
            check=recovery_check(backend, await backend.request_ids(), await backend.signer()),
            target=target,
            audit=backend.audit,
            clock=backend.clock,
        )
        return await Recovery(parts).run(since=since, dry_run=dry_run)
