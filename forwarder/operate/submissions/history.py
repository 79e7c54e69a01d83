"""`forwarder submissions …`, and its commands `list` and `show`: the history of a submission, as far as it is kept: its last fifty
tries, and thirty days of webhook deliveries."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic_core import from_json

from forwarder.assembly.backend import Backend
from forwarder.operate.command import Commands, grouped, with_backend
from forwarder.operate.output import (
    AsJson,
    json_line,
    picked,
    say,
    show_json,
    show_lines,
    show_rows,
    show_table,
    while_read,
)
from forwarder.operate.submissions.bulk import retry
from forwarder.operate.submissions.cancel import cancel
from forwarder.operate.submissions.look_up import look_up
from forwarder.operate.submissions.search import Filters, RequestId, SubmissionQuery, SubmissionSearch, not_found, row
from forwarder.operate.submissions.settle import settle
from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus
from forwarder.store.delivery_queue import Deliveries
from forwarder.store.lists.port import StoredSubmission, SubmissionSummary

if TYPE_CHECKING:
    from forwarder.store.lists.overview import Overview


@dataclass(frozen=True, slots=True)
class Step:
    """An event in the history, `at` a time (ISO 8601). `outcome`: how it ended; `detail`: the message, without card numbers.
    `planned`: it has yet to happen."""

    at: str
    what: str
    outcome: str | None = None
    reason: str | None = None
    detail: str | None = None
    seconds: float | None = None
    planned: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A submission with its history. `unpublished`: revisions of its events that are not known to be on the log."""

    summary: SubmissionSummary
    stored: StoredSubmission
    unpublished: Sequence[int]
    deliveries: Sequence[DeliveryEntry]

    def steps(self) -> Sequence[Step]:
        """The timeline, earliest first; planned steps last."""
        steps = [*self._past(), *self._posted()]
        return [*sorted(steps, key=lambda step: step.at), *self._planned()]

    def _past(self) -> Iterator[Step]:
        summary, stored = self.summary, self.stored
        yield Step(summary.accepted_at, "accepted")
        yield Step(from_json(stored.record)["createdAt"], "stored")
        for attempt in stored.attempts:
            seconds = attempt.duration_ms / 1000
            yield Step(attempt.started_at, attempt.action, attempt.outcome, attempt.reason, attempt.detail, seconds)
        if stored.cancellation is not None:
            asked = stored.cancellation
            yield Step(asked.requested_at, "cancellation requested", asked.status.value.lower(), detail=asked.reason)
        if stored.revision:
            code = None if stored.problem is None else stored.problem.get("code")
            published = "not published yet" if stored.revision in self.unpublished else "published"
            yield Step(stored.updated_at, stored.status.value, published, code)

    def _posted(self) -> Iterator[Step]:
        for delivery in self.deliveries:
            for attempt in delivery.attempts:
                outcome = attempt.failure if attempt.status is None else f"HTTP {attempt.status}"
                what = f"webhook {delivery.endpoint_id}"
                yield Step(attempt.at, what, outcome, detail=attempt.detail, seconds=attempt.ms / 1000)

    def _planned(self) -> Iterator[Step]:
        summary = self.summary
        if summary.held:
            yield Step("", "a worker has it now", planned=True)
        elif summary.due_at is not None:
            yield Step(summary.due_at, _NEXT.get(summary.status, "next look"), planned=True)
        elif summary.status is Status.IN_DOUBT:
            yield Step("", "waits for `forwarder submissions settle`", planned=True)
        if summary.status is Status.PENDING and summary.deadline_at is not None:
            yield Step(summary.deadline_at, "deadline", planned=True)
        for delivery in self.deliveries:
            if delivery.status is DeliveryStatus.PENDING and delivery.due_at is not None:
                yield Step(iso(delivery.due_at), f"webhook {delivery.endpoint_id}: next try", planned=True)


_NEXT = {Status.PENDING: "next try", Status.IN_DOUBT: "next look-up", Status.CONFIRMED: "cancellation: next try"}


async def history_of(request_id: str, overview: "Overview", deliveries: Deliveries) -> History | None:
    """The submission with that request id, or the one that it is a duplicate of; None if it was not ingested. Raises
    `StoreUnavailable`."""
    found = await overview.find(request_id)
    if found is None:
        return None
    summary, stored = found
    about = await deliveries.about(summary.request_id)
    return History(summary, stored, await overview.unpublished(summary.id), about)


# --- the commands ---

_COLUMNS = ("acceptedAt", "status", "requestId", "account", "attempts", "reason", "dueAt", "pmsReservationId")


_PAGE = 500


def commands() -> Commands:
    """show, list, look-up, retry, settle, cancel"""
    return {
        "show": show,
        "list": list_submissions,
        "look-up": look_up,
        "retry": retry,
        "settle": settle,
        "cancel": cancel,
    }


@grouped
def list_submissions(
    *,
    filters: Filters,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Search submissions of any status, newest first; also REJECTED and FAILED ones, which callers' lists leave out.

    Filters are combined with AND. Filters other than account, status, property, PMS id and transaction scan the matching
    submissions, and can be slow.
    """
    query = filters.query()
    with while_read():
        if as_json:
            with_backend(partial(_print_array, query, limit))
        else:
            found = with_backend(lambda backend: _search(backend).newest(query, limit))
            show_rows([row(summary) for summary in found], _COLUMNS, as_json=False)


async def _print_array(query: SubmissionQuery, limit: int, backend: Backend) -> None:
    """Prints a JSON array, a page at a time: there may be more submissions than fit into memory."""
    left, before = limit, "["
    async with aclosing(_search(backend).pages(query, page=min(limit, _PAGE))) as pages:
        async for rows, _ in pages:
            for summary in rows[:left]:
                show_lines([before + json_line(row(summary))])
                before = ","
            left -= len(rows)
            if left <= 0:
                break
    show_lines(["[]" if before == "[" else "]"])


def _search(backend: Backend) -> SubmissionSearch:
    return SubmissionSearch(backend.overview, backend.request_ids)


def show(request_id: RequestId, as_json: AsJson = False) -> None:
    """Show one submission: its history, try by try, and what comes next; with --json also its record."""
    found = with_backend(lambda backend: history_of(request_id, backend.overview, Deliveries(backend.engine)))
    if found is None:
        raise not_found(request_id)
    if as_json:
        show_json(_whole(found))
        return
    for line in _summary_lines(found):
        say(line)
    say("")
    accepted_at = found.summary.accepted_at
    show_table([_step_row(step, accepted_at) for step in found.steps()])


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
    after = _after(accepted_at, step.at) if step.at else ""
    took = "" if step.seconds is None else f"{step.seconds:.3f} s"
    said = ": ".join(each for each in (step.reason, step.detail) if each)
    return (step.at, after, f"next: {step.what}" if step.planned else step.what, took, step.outcome or "", said)


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _after(earlier: str, later: str) -> str:
    """How long after `earlier` it was `later`, both in ISO 8601."""
    seconds = (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if abs(seconds) >= unit:
            return f"{seconds / unit:+.1f} {name}"
    return f"{seconds:+.3f} s"


def _whole(found: History) -> Mapping[str, Any]:
    stored = found.stored
    about = {
        **row(found.summary),
        "attempts": [
            picked(each, "number action startedAt durationMs outcome reason detail") for each in stored.attempts
        ],
        "unpublishedEvents": list(found.unpublished),
    }
    if stored.evidence.words:
        about["evidence"] = stored.evidence.words
    if stored.cancellation is not None:
        about["cancellation"] = stored.cancellation.as_json()
    deliveries = [picked(each, "webhook=endpoint_id event=event_id status tries") for each in found.deliveries]
    return {**about, "webhooks": deliveries, "record": from_json(stored.record)}
