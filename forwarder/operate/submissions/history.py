"""`forwarder submissions …`, and its commands `list` and `show`: the history of a submission, as far as it is kept: its last fifty
tries, and thirty days of webhook deliveries."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic_core import from_json

from forwarder.operate.command import Commands, open_deployment
from forwarder.operate.output import (
    AsJson,
    Block,
    Grid,
    Shown,
    Table,
    json_line,
    picked,
    show,
    show_lines,
    while_read,
)
from forwarder.operate.submissions.bulk import cancel, retry
from forwarder.operate.submissions.look_up import look_up
from forwarder.operate.submissions.search import Filters, RequestId, SubmissionSearch, not_found, row
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
        return [*sorted(self._past(), key=lambda step: step.at), *self._planned()]

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
        for delivery in self.deliveries:
            for posted in delivery.attempts:
                outcome = posted.failure if posted.status is None else f"HTTP {posted.status}"
                what, seconds = f"webhook {delivery.endpoint_id}", posted.ms / 1000
                yield Step(posted.at, what, outcome, detail=posted.detail, seconds=seconds)

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
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


async def list_submissions(
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
    async with open_deployment() as backend:
        search = SubmissionSearch(backend.overview, backend.request_ids)
        with while_read():
            if not as_json:
                show(Table([row(summary) for summary in await search.newest(query, limit)], _COLUMNS))
                return
            # A page at a time: there may be more submissions than fit into memory.
            left, before = limit, "["
            async with aclosing(search.pages(query, page=min(limit, _PAGE))) as pages:
                async for rows, _ in pages:
                    for summary in rows[:left]:
                        show_lines([before + json_line(row(summary))])
                        before = ","
                    left -= len(rows)
                    if left <= 0:
                        break
            show_lines(["[]" if before == "[" else "]"])


async def show_history(request_id: RequestId) -> Shown:
    """Show one submission: its history, try by try, and what comes next; with --json also its record."""
    async with open_deployment() as backend:
        found = await history_of(request_id, backend.overview, Deliveries(backend.engine))
    if found is None:
        raise not_found(request_id)
    summary, stored, record = found.summary, found.stored, from_json(found.stored.record)
    about = {
        **row(summary),
        "attempts": [
            picked(each, "number action startedAt durationMs outcome reason detail") for each in stored.attempts
        ],
        "unpublishedEvents": list(found.unpublished),
    }
    if stored.evidence.words:
        about["evidence"] = stored.evidence.words
    if stored.cancellation is not None:
        about["cancellation"] = stored.cancellation.as_json()
    about["webhooks"] = [picked(each, "webhook=endpoint_id event=event_id status tries") for each in found.deliveries]
    made = "" if summary.pms_reservation_id is None else f", {summary.pms_reservation_id} in the PMS"
    room = "" if not record.get("roomId") else f", room {record['roomId']}"
    price = f"{record['totalPrice']} {record['currency']}".strip()
    text: tuple[Block, ...] = (
        f"{summary.request_id} is {summary.status.value}{made}",
        f"account {summary.account_id}, workspace {summary.workspace_id}, property {summary.property_id}{room}",
        f"{summary.arrival} to {summary.departure}, {price}, {record['primaryGuest']['name'] or 'no guest'}",
        *stored.evidence.words,
        "",
        Grid([_step_row(step, summary.accepted_at) for step in found.steps()]),
    )
    return Shown({**about, "record": record}, text)


def _step_row(step: Step, accepted_at: str) -> tuple[str, ...]:
    after = ""
    if step.at:
        seconds = (datetime.fromisoformat(step.at) - datetime.fromisoformat(accepted_at)).total_seconds()
        unit, name = next(((unit, name) for unit, name in _UNITS if abs(seconds) >= unit), (1, "s"))
        after = f"{seconds:+.3f} s" if unit == 1 else f"{seconds / unit:+.1f} {name}"
    took = "" if step.seconds is None else f"{step.seconds:.3f} s"
    said = ": ".join(each for each in (step.reason, step.detail) if each)
    return (step.at, after, f"next: {step.what}" if step.planned else step.what, took, step.outcome or "", said)


COMMANDS: Commands = {
    "show": show_history,
    "list": list_submissions,
    "look-up": look_up,
    "retry": retry,
    "settle": settle,
    "cancel": cancel,
}
