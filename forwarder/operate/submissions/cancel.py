"""An operator's cancellation, which takes the same path as a caller's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.operate.command import grouped, stop_on_signal, with_backend
from forwarder.operate.output import AsJson, Failed, WrongUsage, progress
from forwarder.operate.submissions.bulk import (
    CannotRepair,
    DryRun,
    OnDone,
    Outcome,
    Plan,
    RequestIds,
    Yes,
    agreed,
    finish,
    groups_of,
    preview,
    run_each,
    selected,
)
from forwarder.operate.submissions.search import Filters, SubmissionQuery, not_found, report_status
from forwarder.oversight.audit import Audit
from forwarder.pms.registry import takes_cancellations
from forwarder.process.clock import Clock
from forwarder.process.supervision import Stop
from forwarder.reservation.cancellation import MAX_REASON, CancellationRequest, CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import StoredSubmission, SubmissionSummary
from forwarder.tenancy.port import Directory
from forwarder.topics.codec import encode_cancellation
from forwarder.topics.port import Log, Publisher
from forwarder.topics.signing import MessageSigner

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview

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


@dataclass(frozen=True, slots=True)
class _CancelFilters(Filters):
    """The filters for cancelling: here --reason is the reason to cancel, and there is no --pms-id."""

    reason: Annotated[
        str | None, typer.Option("--last-reason", help="Only those whose last try ended for this reason.")
    ] = None
    pms_id: str | None = field(default=None, init=False)


@grouped
def cancel(
    request_ids: RequestIds = None,
    why: Annotated[str | None, typer.Option("--reason", help="The reason, which the callers can read.")] = None,
    *,
    filters: _CancelFilters,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Cancel submissions: pending ones are not sent, confirmed ones are cancelled in their PMS. Asking twice cancels once."""
    if why is not None and (len(why) > MAX_REASON or "\0" in why):
        raise WrongUsage(f"--reason has at most {MAX_REASON:,} characters, and not the character U+0000.")
    query = filters.query()
    if request_ids is not None and len(request_ids) == 1 and query == SubmissionQuery() and not dry_run:
        (one,) = request_ids
        report_status(one, *with_backend(partial(_cancel, one, why)), as_json=as_json)
        return
    with_backend(partial(_cancel_many, request_ids or [], query, why, dry_run, yes, as_json))


async def _cancel(request_id: str, reason: str | None, backend: Backend) -> tuple[Status, str]:
    """Its status, and what happens next."""
    try:
        status = await (await _cancellations(backend)).request(request_id, reason)
    except CannotCancel as error:
        raise Failed(str(error)) from None
    if status is None:
        raise not_found(request_id)
    if status is Status.CANCELLED:
        return status, "There is nothing left to do."
    return status, "A worker cancels it; `forwarder submissions show` shows the result."


async def _cancel_many(
    request_ids: Sequence[str],
    query: SubmissionQuery,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    backend: Backend,
) -> None:
    found, unknown = await selected(backend, request_ids, query)
    plan = plan_cancel(found).refusing(unknown)
    if dry_run:
        chosen = {*plan.chosen}
        preview(groups_of([each for each in found if each.request_id in chosen]), plan, "cancelled", as_json=as_json)
        return
    agreed(f"Cancel {len(plan.chosen)}? What was made is cancelled in its PMS.", yes=yes)
    cancellations = await _cancellations(backend)
    with stop_on_signal() as stop, progress(len(plan.chosen), "Cancelling") as on_done:
        outcome = await cancellations.run(plan, reason, stop=stop, on_done=on_done)
    finish(outcome, plan, "asked to be cancelled", as_json=as_json)


async def _cancellations(backend: Backend) -> Cancellations:
    topic, signer = backend.settings.topics.requests, await backend.signer()
    return Cancellations(backend.overview, backend.directory, backend.log, topic, signer, backend.clock, backend.audit)
