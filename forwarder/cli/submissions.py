"""`forwarder submissions …`: what became of what was submitted, in every workspace."""

from typing import Annotated, Any

import typer
from pydantic_core import from_json

from forwarder.cli.output import AsJson, Failed, WrongUsage, show_one, show_rows
from forwarder.cli.running import with_backend
from forwarder.reservation.outcome import Status
from forwarder.store.port import Summary

_COLUMNS = ("id", "status", "requestId", "account", "attempts", "problem")


def commands() -> typer.Typer:
    """show, list"""
    group = typer.Typer(help="What became of submissions.", no_args_is_help=True)
    group.command("show")(show)
    group.command("list")(list_submissions)
    return group


def show(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The requestId of its 202: rsv_….")],
    as_json: AsJson = False,
) -> None:
    """Show one submission: its standing, every attempt, its record."""
    found = with_backend(lambda backend: backend.overview.find(request_id))
    if found is None:
        raise Failed(
            f"no submission {request_id} was taken in; if it was just accepted, the worker has yet to reach it"
        )
    summary, stored = found
    attempts = [
        {
            "number": attempt.number,
            "action": attempt.action,
            "startedAt": attempt.started_at,
            "durationMs": attempt.duration_ms,
            "outcome": attempt.outcome,
            "reason": attempt.reason,
            "detail": attempt.detail,
        }
        for attempt in stored.attempts
    ]
    show_one({**_row(summary), "attempts": attempts, "record": from_json(stored.record)}, as_json=as_json)


def list_submissions(
    status: Annotated[str | None, typer.Option(help="Only of this status, such as PENDING.")] = None,
    account: Annotated[str | None, typer.Option(help="Only of this integration account.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List submissions, newest first."""
    if status is not None and status.upper() not in Status.__members__:
        raise WrongUsage(f"There is no status {status!r}; there are: {', '.join(Status)}.")
    wanted = None if status is None else Status(status.upper())
    found = with_backend(lambda backend: backend.overview.latest(status=wanted, account_id=account, limit=limit))
    show_rows([_row(summary) for summary in found], _COLUMNS, as_json=as_json)


def _row(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "requestId": summary.request_id,
        "account": summary.account_id,
        "status": summary.status.value,
        "propertyId": summary.property_id,
        "arrival": summary.arrival,
        "departure": summary.departure,
        "attempts": summary.attempts,
        "acceptedAt": summary.accepted_at,
        "dueAt": summary.due_at,
        "problem": summary.problem_code,
    }
