"""The history of one submission, in order, as far as the store and the delivery log keep it: its last fifty tries, and thirty days
of webhook deliveries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic_core import from_json

from forwarder.process.clock import iso
from forwarder.reservation.outcome import Status
from forwarder.store.deliveries import DeliveryEntry, DeliveryStatus
from forwarder.store.lists.port import StoredSubmission, SubmissionSummary

if TYPE_CHECKING:
    from forwarder.store.delivery_queue import SqlDeliveryLog
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


async def history_of(request_id: str, overview: "Overview", deliveries: "SqlDeliveryLog") -> History | None:
    """The submission with that request id, or the one that it is a duplicate of; None if it was not ingested. Raises
    `StoreUnavailable`."""
    found = await overview.find(request_id)
    if found is None:
        return None
    summary, stored = found
    about = await deliveries.about(summary.request_id)
    return History(summary, stored, await overview.unpublished(summary.id), about)


def seconds_between(earlier: str, later: str) -> float:
    """Between two moments in ISO 8601."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
