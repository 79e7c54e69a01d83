"""`forwarder submissions list|show|look-up`: submissions and their outcomes, in every workspace."""

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

import typer
from pydantic_core import from_json

from forwarder.assembly.backend import Backend
from forwarder.assembly.commands.probe import open_look_ups
from forwarder.cli.backend import with_backend
from forwarder.cli.options import grouped
from forwarder.cli.output import (
    AsJson,
    Failed,
    json_line,
    say,
    show_json,
    show_lines,
    show_rows,
    show_table,
    while_read,
)
from forwarder.cli.submissions import repairs
from forwarder.cli.submissions.query import Filters, row
from forwarder.operations.look_up import LookedUp
from forwarder.operations.show.search import SubmissionQuery, SubmissionSearch
from forwarder.operations.show.timeline import History, Step, history_of, seconds_between
from forwarder.store.delivery_queue import SqlDeliveryLog

_COLUMNS = ("acceptedAt", "status", "requestId", "account", "attempts", "reason", "dueAt", "pmsReservationId")


def commands() -> typer.Typer:
    """show, list, look-up, retry, settle, cancel"""
    group = typer.Typer(help="Submissions: search, show, look up, retry, settle and cancel them.", no_args_is_help=True)
    group.command("show")(show)
    group.command("list")(list_submissions)
    group.command("look-up")(look_up)
    group.command("retry")(repairs.retry)
    group.command("settle")(repairs.settle)
    group.command("cancel")(repairs.cancel)
    return group


@grouped
def list_submissions(
    *,
    filters: Filters,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object a line, instead of a table.")] = False,
) -> None:
    """Search submissions of any status, newest first; also REJECTED and FAILED ones, which callers' lists leave out.

    Filters are combined with AND. Filters other than account, status, property, PMS id and transaction scan the matching
    submissions, and can be slow.
    """
    query = filters.query()
    with while_read():
        if as_json:
            with_backend(partial(_print_lines, query, limit))
        else:
            found = with_backend(lambda backend: _search(backend).newest(query, limit))
            show_rows([row(summary) for summary in found], _COLUMNS, as_json=False)


async def _print_lines(query: SubmissionQuery, limit: int, backend: Backend) -> None:
    left = limit
    async with aclosing(_search(backend).pages(query, page=min(limit, _PAGE))) as pages:
        async for rows, _ in pages:
            show_lines(json_line(row(summary)) for summary in rows[:left])
            left -= len(rows)
            if left <= 0:
                return


_PAGE = 500


def _search(backend: Backend) -> SubmissionSearch:
    return SubmissionSearch(backend.overview, backend.request_ids)


def show(request_id: repairs.RequestId, as_json: AsJson = False) -> None:
    """Show one submission: its history, try by try, and what comes next; with --json also its record."""
    found = with_backend(lambda backend: history_of(request_id, backend.overview, SqlDeliveryLog(backend.engine)))
    if found is None:
        raise repairs.not_taken_in(request_id)
    if as_json:
        show_json(_whole(found))
        return
    for line in _summary_lines(found):
        say(line)
    say("")
    accepted_at = found.summary.accepted_at
    show_table([_step_row(step, accepted_at) for step in found.steps()])


def look_up(request_id: repairs.RequestId, as_json: AsJson = False) -> None:
    """Ask the PMS whether it has the reservation, by our reference. Nothing is changed, here or there.

    Use it before you settle a submission of a PMS that workers do not look in. Exit code 1 where the PMS does not say.
    """

    async def run(backend: Backend) -> LookedUp | None:
        async with open_look_ups(backend) as look_ups:
            return await look_ups.look_up(request_id)

    found = with_backend(run)
    if found is None:
        raise repairs.not_taken_in(request_id)
    if as_json:
        show_json({"answer": found.answer, "pmsReservationId": found.pms_reservation_id, "says": found.says})
    elif found.answer != "unknown":
        say(found.says)
    if found.answer == "unknown":
        raise Failed(found.says)


def _summary_lines(found: History) -> Iterator[str]:
    summary, record = found.summary, from_json(found.stored.record)
    made = "" if summary.pms_reservation_id is None else f", {summary.pms_reservation_id} in the PMS"
    yield f"{summary.request_id} is {summary.status.value}{made}"
    room = "" if not record.get("roomId") else f", room {record['roomId']}"
    yield f"account {summary.account_id}, workspace {summary.workspace_id}, property {summary.property_id}{room}"
    price = f"{record['totalPrice']} {record['currency']}".strip()
    yield f"{summary.arrival} to {summary.departure}, {price}, {record['primaryGuest']['name'] or 'no guest'}"
    yield from found.stored.evidence.words


def _step_row(step: Step, accepted_at: str) -> tuple[str, ...]:
    after = "" if not step.at else _after(seconds_between(accepted_at, step.at))
    took = "" if step.seconds is None else f"{step.seconds:.3f} s"
    said = ": ".join(each for each in (step.reason, step.detail) if each)
    return (step.at, after, f"next: {step.what}" if step.planned else step.what, took, step.outcome or "", said)


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _after(seconds: float) -> str:
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if abs(seconds) >= unit:
            return f"{seconds / unit:+.1f} {name}"
    return f"{seconds:+.3f} s"


def _whole(found: History) -> Mapping[str, Any]:
    stored = found.stored
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
    about = {**row(found.summary), "attempts": attempts, "unpublishedEvents": list(found.unpublished)}
    if stored.evidence.words:
        about["evidence"] = stored.evidence.words
    if stored.cancellation is not None:
        about["cancellation"] = stored.cancellation.as_json()
    deliveries = [
        {"webhook": each.endpoint_id, "event": each.event_id, "status": each.status.value, "tries": each.tries}
        for each in found.deliveries
    ]
    return {**about, "webhooks": deliveries, "record": from_json(stored.record)}
