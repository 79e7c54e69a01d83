"""An operator's cancellation, which goes the same way as a caller's; and whether an account's PMS takes cancellations at all."""

from dataclasses import dataclass

from forwarder.operations.audit import Audit
from forwarder.pms.port import AccountConnection, BadOptions, UnknownKind
from forwarder.pms.registry import check_options, registered
from forwarder.process.clock import Clock
from forwarder.reservation.cancellation import CancellationRequest, CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import Overview, StoredSubmission, SubmissionSummary
from forwarder.tenancy.port import Account, Directory
from forwarder.topics.codec import encode_cancellation
from forwarder.topics.port import Log


class CannotCancel(Exception):
    """There is nothing to cancel, or its PMS takes no cancellations. The message says which."""


@dataclass(frozen=True, slots=True)
class Cancellations:
    """Asks the workers to cancel submissions, by a message on the requests `topic`."""

    overview: Overview
    directory: Directory
    log: Log
    topic: str
    clock: Clock
    audit: Audit

    async def request(self, request_id: str, reason: str | None) -> Status | None:
        """The submission's status, once its cancellation is requested; CANCELLED where there is nothing left to do, None where no
        such submission was taken in. Asking twice cancels once. Raises `CannotCancel`, and what the seams raise."""
        found = await self.overview.find(request_id)
        if found is None:
            return None
        summary, stored = found
        if stored.status in {Status.REJECTED, Status.FAILED}:
            raise CannotCancel(f"{request_id} is {stored.status.value}: nothing was made that could be cancelled.")
        if stored.status is not Status.CANCELLED:
            await self._publish(summary, stored, reason)
        return stored.status

    async def _publish(self, summary: SubmissionSummary, stored: StoredSubmission, reason: str | None) -> None:
        account = await self.directory.account(summary.account_id)
        if account is not None and not takes_cancellations(account, self.clock):
            raise CannotCancel(f"a PMS of kind {account.kind} takes no cancellations: cancel it there.")
        if stored.cancellation is not None and stored.cancellation.status is CancellationStatus.REQUESTED:
            return
        request = CancellationRequest(
            request_id=summary.request_id,
            account_id=summary.account_id,
            key=f"{summary.account_id}:{summary.property_id}",
            requested_at=self.clock.now(),
            reason=reason,
            revision=stored.revision,
        )
        requested = self.audit.request(
            "submission.cancel",
            workspace=None if account is None else account.workspace_id,
            target=summary.request_id,
            account=summary.account_id,
        )
        async with requested, self.log.publisher() as publisher:
            await publisher.publish(self.topic, [encode_cancellation(request)])


def takes_cancellations(account: Account, clock: Clock) -> bool:
    """By its kind and options. True where those are wrong: an operator can repair them, and the worker waits for that."""
    try:
        check_options(account.kind, account.options)
    except (UnknownKind, BadOptions):
        return True
    connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
    return registered().kinds[account.kind](connection, clock).capabilities.cancel
