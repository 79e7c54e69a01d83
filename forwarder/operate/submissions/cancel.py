"""An operator's cancellation, which takes the same path as a caller's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.command import open_deployment
from forwarder.operate.output import Failed, Shown, WrongUsage
from forwarder.operate.submissions.bulk import (
    CannotRepair,
    DryRun,
    OnDone,
    Outcome,
    Plan,
    RequestIds,
    Yes,
    carry_out,
    groups_of,
    run_each,
    selected,
)
from forwarder.operate.submissions.search import Filters, SubmissionQuery, not_found, status_after
from forwarder.pms.registry import takes_cancellations
from forwarder.process.supervision import Stop
from forwarder.reservation.cancellation import MAX_REASON, CancellationRequest, CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionSummary
from forwarder.topics.codec import encode_cancellation
from forwarder.topics.port import Publisher
from forwarder.topics.signing import MessageSigner


class CannotCancel(Exception):
    """There is nothing to cancel, or the PMS does not support it. The message says which."""


@dataclass(frozen=True, slots=True)
class Cancellations:
    """Asks the workers to cancel submissions, by a message on the requests topic."""

    backend: Backend
    signer: MessageSigner

    async def request(self, request_id: str, reason: str | None) -> Status | None:
        """Requests a cancellation and returns the submission's status; CANCELLED if there is nothing left to do, None if no such
        submission was ingested. Asking twice cancels once. Raises `CannotCancel`, and the errors of the store and the log."""
        async with self.backend.log.publisher() as publisher:
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

        async with self.backend.log.publisher() as publisher:
            return await run_each(plan.chosen, str, cancel, stop=stop, on_done=on_done)

    async def _request(self, publisher: Publisher, request_id: str, reason: str | None) -> Status | None:
        backend = self.backend
        found = await backend.overview.find(request_id)
        if found is None:
            return None
        summary, stored = found
        if stored.status in {Status.REJECTED, Status.FAILED}:
            raise CannotCancel(f"{request_id} is {stored.status.value}: nothing was made that could be cancelled.")
        if stored.status is Status.CANCELLED:
            return stored.status
        account = await backend.directory.account(summary.account_id)
        if account is not None and not takes_cancellations(account, backend.clock):
            raise CannotCancel(f"a PMS of kind {account.kind} takes no cancellations: cancel it there.")
        if stored.cancellation is not None and stored.cancellation.status is CancellationStatus.REQUESTED:
            return stored.status
        request = CancellationRequest(
            request_id=summary.request_id,
            account_id=summary.account_id,
            key=f"{summary.account_id}:{summary.property_id}",
            requested_at=backend.clock.now(),
            reason=reason,
            revision=stored.revision,
            partition=stored.partition,
        )
        async with backend.audit.request(
            "submission.cancel",
            workspace=None if account is None else account.workspace_id,
            target=summary.request_id,
            account=summary.account_id,
        ):
            message = self.signer.signed(encode_cancellation(request))
            await publisher.publish(backend.settings.topics.requests, [message])
        return stored.status


def plan_cancel(found: Sequence[SubmissionSummary]) -> Plan[str]:
    """Plans to cancel those of `found` that may be cancelled, by request id."""
    settled = [each.request_id for each in found if each.status is Status.CANCELLED]
    nothing = {each.request_id: each.status for each in found if each.status in {Status.REJECTED, Status.FAILED}}
    refused = {each: f"{status.value}: nothing was made that could be cancelled" for each, status in nothing.items()}
    return Plan([each.request_id for each in found if each.request_id not in {*settled, *refused}], settled, refused)


@dataclass(frozen=True, slots=True)
class _CancelFilters(Filters):
    """The filters for cancelling: here --reason is the reason to cancel, and there is no --pms-id."""

    reason: Annotated[
        str | None, typer.Option("--last-reason", help="Only those whose last try ended for this reason.")
    ] = None
    pms_id: str | None = field(default=None, init=False)


async def cancel(
    request_ids: RequestIds = None,
    why: Annotated[str | None, typer.Option("--reason", help="The reason, which the callers can read.")] = None,
    *,
    filters: _CancelFilters,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Shown:
    """Cancel submissions: pending ones are not sent, confirmed ones are cancelled in their PMS. Asking twice cancels once."""
    if why is not None and (len(why) > MAX_REASON or "\0" in why):
        raise WrongUsage(f"--reason has at most {MAX_REASON:,} characters, and not the character U+0000.")
    query = filters.query()
    async with open_deployment() as backend:
        cancellations = Cancellations(backend, await backend.signer())
        if request_ids is not None and len(request_ids) == 1 and query == SubmissionQuery() and not dry_run:
            (one,) = request_ids
            try:
                status = await cancellations.request(one, why)
            except CannotCancel as error:
                raise Failed(str(error)) from None
            if status is None:
                raise not_found(one)
            if status is Status.CANCELLED:
                return status_after(one, status, "There is nothing left to do.")
            return status_after(one, status, "A worker cancels it; `forwarder submissions show` shows the result.")
        found, unknown = await selected(backend, request_ids or [], query)
        plan = plan_cancel(found).refusing(unknown)
        chosen = {*plan.chosen}
        return await carry_out(
            plan,
            groups_of([each for each in found if each.request_id in chosen]),
            lambda stop, on_done: cancellations.run(plan, why, stop=stop, on_done=on_done),
            done="asked to be cancelled",
            planned="cancelled",
            question=f"Cancel {len(plan.chosen)}? What was made is cancelled in its PMS.",
            dry_run=dry_run,
            yes=yes,
        )
