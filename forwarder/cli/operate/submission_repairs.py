"""`forwarder submissions settle|cancel`: what operators decide about submissions."""

from functools import partial
from typing import Annotated, assert_never

import typer

from forwarder.assembly.backend import Backend
from forwarder.cli.backend import with_backend
from forwarder.cli.operate.submission_query import letter_id
from forwarder.cli.output import AsJson, Failed, WrongUsage, say, show_json
from forwarder.operations.cancellation import Cancellations, CannotCancel
from forwarder.operations.settle import NotInDoubt, Repair, account_deadline_seconds
from forwarder.reservation.cancellation import MAX_REASON
from forwarder.reservation.outcome import Status

RequestId = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")]


def settle(
    request_id: RequestId,
    confirmed: Annotated[
        str | None, typer.Option(metavar="PMS_ID", help="The PMS has it, under this identifier.")
    ] = None,
    not_made: Annotated[
        bool,
        typer.Option(
            "--not-made", help="The PMS does not have it and never will: push it again, until the account's deadline."
        ),
    ] = False,
    rejected: Annotated[
        str | None, typer.Option(metavar="REASON", help="The PMS does not have it: give up, for this reason.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Settle a submission that is IN_DOUBT. Look into the PMS first: what you say is not checked."""
    if [confirmed is not None, not_made, rejected is not None].count(True) != 1:
        raise WrongUsage("Say what you found in the PMS: --confirmed PMS_ID, or --not-made, or --rejected REASON.")
    for option, value in (("--confirmed", confirmed), ("--rejected", rejected)):
        if value is not None and not value.strip():
            raise WrongUsage(f"{option} takes a text that is not empty.")

    status, following = with_backend(partial(_settle, request_id, confirmed, rejected))
    if as_json:
        show_json({"requestId": request_id, "status": status.value, "next": following})
    else:
        say(f"{request_id} is {status.value}. {following}")


async def _settle(request_id: str, confirmed: str | None, rejected: str | None, backend: Backend) -> tuple[Status, str]:
    """Its status now, and what happens next."""
    repair = Repair(backend.repairs, backend.clock, backend.audit)
    try:
        if confirmed is not None:
            await repair.confirm(request_id, confirmed.strip())
            return Status.CONFIRMED, "A worker publishes its result event within half a minute."
        if rejected is not None:
            await repair.reject(request_id, rejected.strip())
            return Status.REJECTED, "A worker publishes its result event within half a minute."
        seconds = await account_deadline_seconds(request_id, backend.overview, backend.directory)
        await repair.push_again(request_id, deadline_seconds=seconds)
    except NotInDoubt:
        raise await _not_in_doubt(backend, request_id) from None
    return Status.PENDING, f"A worker pushes it again, for up to {seconds:,} s, the deadline of its account."


async def _not_in_doubt(backend: Backend, request_id: str) -> Failed:
    """Why it cannot be settled, and what to do instead."""
    found = await backend.overview.find(request_id)
    if found is None:
        return not_taken_in(request_id)
    summary = found[0]
    match summary.status:
        case Status.PENDING:
            advice = "the workers are at it; `forwarder submissions show` tells how far they are"
        case Status.FAILED:
            advice = f"it was not made; `forwarder dead-letters replay {letter_id(summary)}` puts it back"
        case Status.IN_DOUBT:
            advice = "a worker was just looking for it; try again"
        case Status.CONFIRMED | Status.REJECTED | Status.CANCELLED:
            advice = "there is nothing to settle"
        case _:
            assert_never(summary.status)
    return Failed(f"{request_id} is {summary.status.value}: {advice}.")


def cancel(
    request_id: RequestId,
    reason: Annotated[str | None, typer.Option(help="The reason, which its callers can read.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a submission: it is not sent any more, or cancelled in its PMS. Asking twice cancels once."""
    if reason is not None and (len(reason) > MAX_REASON or "\0" in reason):
        raise WrongUsage(f"--reason has at most {MAX_REASON:,} characters, and not the character U+0000.")
    status, following = with_backend(partial(_cancel, request_id, reason))
    if as_json:
        show_json({"requestId": request_id, "status": status.value, "next": following})
    else:
        say(f"{request_id} is {status.value}. {following}")


async def _cancel(request_id: str, reason: str | None, backend: Backend) -> tuple[Status, str]:
    """Its status, and what happens next."""
    topic = backend.settings.topics.requests
    cancellations = Cancellations(backend.overview, backend.directory, backend.log, topic, backend.clock, backend.audit)
    try:
        status = await cancellations.request(request_id, reason)
    except CannotCancel as error:
        raise Failed(str(error)) from None
    if status is None:
        raise not_taken_in(request_id)
    if status is Status.CANCELLED:
        return status, "There is nothing left to do."
    return status, "A worker cancels it; `forwarder submissions show` tells what came of it."


def not_taken_in(request_id: str) -> Failed:
    """No worker has taken it in."""
    return Failed(f"no submission {request_id} was taken in; if it was just accepted, the worker has yet to reach it")
