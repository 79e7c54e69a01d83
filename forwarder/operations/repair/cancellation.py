"""An operator's cancellation, which takes the same path as a caller's; and whether an account's PMS supports cancellations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forwarder.operations.audit import Audit
from forwarder.operations.repair.bulk import CannotRepair, OnDone, Outcome, Plan, run_each
from forwarder.pms.port import AccountConnection, BadOptions, UnknownKind
from forwarder.pms.registry import check_options, registered
from forwarder.process.clock import Clock
from forwarder.process.supervision import Stop
from forwarder.reservation.cancellation import CancellationRequest, CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import StoredSubmission, SubmissionSummary
from forwarder.tenancy.port import Account, Directory
from forwarder.topics.codec import encode_cancellation
from forwarder.topics.port import Log, Publisher
from forwarder.topics.signing import MessageSigner

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview


class CannotCancel(Exception):
    """There is nothing to cancel, or the PMS does not support it. The message says which."""


@dataclass(frozen=True, slots=True)
class Cancellations:
    """Asks the workers to cancel submissions, by a message on the requests `topic`."""

    overview: "Overview"
    directory: Directory
    log: Log
    topic: str
    signer: MessageSigner
    clock: Clock
    audit: Audit

    async def request(self, request_id: str, reason: str | None) -> Status | None:
        """Requests a cancellation and returns the submission's status; CANCELLED if there is nothing left to do, None if no such
        submission was ingested. Asking twice cancels once. Raises `CannotCancel`, and the errors of the store and the log."""
        async with self.log.publisher() as publisher:
            return await self._request(publisher, request_id, reason)

    async def run(
        self, plan: Plan[str], reason: str | None, *, stop: Stop, on_done: OnDone = lambda _count: None
    ) -> Outcome:
        """Requests the cancellation of each, as `request` does."""

        async def cancel(request_id: str) -> bool:
            try:
                status = await self._request(publisher, request_id, reason)
            except CannotCancel as error:
                raise CannotRepair(str(error)) from None
            if status is None:
                raise CannotRepair("unknown submission")
            return status is not Status.CANCELLED

        async with self.log.publisher() as publisher:
            return await run_each(plan.chosen, str, cancel, stop=stop, on_done=on_done)

    async def _request(self, publisher: Publisher, request_id: str, reason: str | None) -> Status | None:
        found = await self.overview.find(request_id)
        if found is None:
            return None
        summary, stored = found
        if stored.status in {Status.REJECTED, Status.FAILED}:
            raise CannotCancel(f"{request_id} is {stored.status.value}: nothing was made that could be cancelled.")
        if stored.status is not Status.CANCELLED:
            await self._publish(publisher, summary, stored, reason)
        return stored.status

    async def _publish(
        self, publisher: Publisher, summary: SubmissionSummary, stored: StoredSubmission, reason: str | None
    ) -> None:
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
            partition=stored.partition,
        )
        requested = self.audit.request(
            "submission.cancel",
            workspace=None if account is None else account.workspace_id,
            target=summary.request_id,
            account=summary.account_id,
        )
        async with requested:
            await publisher.publish(self.topic, [self.signer.signed(encode_cancellation(request))])


def plan_cancel(found: Sequence[SubmissionSummary]) -> Plan[str]:
    """Plans to cancel those of `found` that may be cancelled, by request id."""
    settled = [each.request_id for each in found if each.status is Status.CANCELLED]
    nothing = {each.request_id: each.status for each in found if each.status in {Status.REJECTED, Status.FAILED}}
    refused = {each: f"{status.value}: nothing was made that could be cancelled" for each, status in nothing.items()}
    return Plan([each.request_id for each in found if each.request_id not in {*settled, *refused}], settled, refused)


def takes_cancellations(account: Account, clock: Clock) -> bool:
    """Whether the account's kind and options allow cancellations. True if the options are invalid: the worker waits for an
    operator."""
    try:
        check_options(account.kind, account.options)
    except (UnknownKind, BadOptions):
        return True
    connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
    return registered().kinds[account.kind](connection, clock).capabilities.cancel
