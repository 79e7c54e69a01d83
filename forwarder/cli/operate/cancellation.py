"""`forwarder submissions cancel`: an operator's cancellation, which goes the way that a caller's goes."""

from functools import partial
from typing import Annotated

import typer

from forwarder.assembly.backend import Backend
from forwarder.assembly.cancelling import takes_cancellations
from forwarder.cli.backend import with_backend
from forwarder.cli.output import AsJson, Failed, WrongUsage, say, show_json
from forwarder.reservation.cancellation import MAX_REASON, CancellationRequest, CancellationStatus
from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import Stored, Summary
from forwarder.topics.cancellations import encode_cancellation

RequestId = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")]


def cancel(
    request_id: RequestId,
    reason: Annotated[str | None, typer.Option(help="Why; its callers read it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Have one submission cancelled: not sent any more, or cancelled in its PMS. Asking twice cancels once."""
    if reason is not None and (len(reason) > MAX_REASON or "\0" in reason):
        raise WrongUsage(f"--reason has at most {MAX_REASON:,} characters, and not the character U+0000.")
    status, following = with_backend(partial(_cancel, request_id, reason))
    if as_json:
        show_json({"requestId": request_id, "status": status.value, "next": following})
    else:
        say(f"{request_id} is {status.value}. {following}")


def not_taken_in(request_id: str) -> Failed:
    """Nothing is known of it here."""
    return Failed(f"no submission {request_id} was taken in; if it was just accepted, the worker has yet to reach it")


async def _cancel(request_id: str, reason: str | None, backend: Backend) -> tuple[Status, str]:
    """How it stands, and what happens next."""
    found = await backend.overview.find(request_id)
    if found is None:
        raise not_taken_in(request_id)
    summary, stored = found
    match stored.status:
        case Status.CANCELLED:
            return stored.status, "There is nothing left to do."
        case Status.REJECTED | Status.FAILED:
            raise Failed(f"{request_id} is {stored.status.value}: nothing was made that could be cancelled.")
        case _:
            await _ask(backend, summary, stored, reason)
    return stored.status, "A worker cancels it; `forwarder submissions show` tells what came of it."


async def _ask(backend: Backend, summary: Summary, stored: Stored, reason: str | None) -> None:
    account = await backend.directory.account(summary.account_id)
    if account is not None and not takes_cancellations(account, backend.clock):
        raise Failed(f"a PMS of kind {account.kind} takes no cancellations: cancel it there.")
    if stored.cancellation is not None and stored.cancellation.status is CancellationStatus.REQUESTED:
        return
    request = CancellationRequest(
        request_id=summary.request_id,
        account_id=summary.account_id,
        key=f"{summary.account_id}:{summary.property_id}",
        requested_at=backend.clock.now(),
        reason=reason,
        revision=stored.revision,
    )
    async with backend.log.publisher() as publisher:
        await publisher.publish(backend.settings.topics.requests, [encode_cancellation(request)])
