"""Result events: what downstream services learn when a submission reaches an outcome. Pure."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from forwarder.reservation.cancellation import Cancellation, CancellationStatus
from forwarder.reservation.identity import is_test
from forwarder.reservation.outcome import Status
from forwarder.reservation.value import value

EVENT_TYPES: dict[Status, str] = {
    Status.CONFIRMED: "reservation.confirmed.v1",
    Status.REJECTED: "reservation.rejected.v1",
    Status.FAILED: "reservation.failed.v1",
    Status.IN_DOUBT: "reservation.in_doubt.v1",
    Status.CANCELLED: "reservation.cancelled.v1",
}
"""The CloudEvents type that each status is announced by; PENDING is not announced."""

_UNSUCCESSFUL_CANCELLATIONS: dict[str, str] = {
    CancellationStatus.REFUSED.value: "reservation.cancellation_refused.v1",
    CancellationStatus.FAILED.value: "reservation.cancellation_failed.v1",
}
"""The event type of a cancellation that left the reservation as it was."""

RESULT_TYPES: tuple[str, ...] = (*EVENT_TYPES.values(), *_UNSUCCESSFUL_CANCELLATIONS.values())
"""Every type of result event."""

_RECORD: Final = b'"reservation":'


class SerializedData(NamedTuple):
    """The JSON text of an event's data in three parts: the record, what is before it, and what is after it."""

    before: bytes
    record: bytes
    after: bytes


@value(frozen=True, slots=False)  # no slots: it keeps what is written of it
class ResultEvent:
    """One change of status. `event_id` stays the same when the event is published again; `revision` counts a submission's
    changes from 1, so that a consumer can order them and skip those that it has seen."""

    request_id: str
    revision: int
    status: Status
    key: str
    occurred_at: str
    data: Mapping[str, Any]
    traceparent: str | None = None

    @property
    def event_id(self) -> str:
        return f"{self.request_id}.{self.revision}"

    @property
    def type(self) -> str:
        cancellation = self.data.get("cancellation")
        came_to_nothing = cancellation and _UNSUCCESSFUL_CANCELLATIONS.get(cancellation["status"])
        return came_to_nothing or EVENT_TYPES[self.status]

    @cached_property
    def written(self) -> SerializedData:
        """`data` as JSON, written once for all readers. NaN and infinity, which JSON lacks, are null."""
        # Within a text its quotes would be escaped: where this is first found is the member itself.
        if [*self.data][-1] == "reservation":  # as nearly always
            before, _, rest = to_json(self.data, inf_nan_mode="null").partition(_RECORD)
            return SerializedData(before + _RECORD, rest[:-1], b"}")
        record = to_json(self.data["reservation"], inf_nan_mode="null")
        before, _, after = to_json({**self.data, "reservation": None}, inf_nan_mode="null").partition(_RECORD + b"null")
        return SerializedData(before + _RECORD, record, after)


def result_data(
    *,
    request_id: str,
    workspace_id: str,
    account_id: str,
    status: Status,
    record: Mapping[str, Any],
    cancellation: Cancellation | None = None,
) -> dict[str, Any]:
    """The body of a result event: whose it is, how it ended, and the whole record (with its `problem`, if any); the cancellation,
    if the event is about one; and `test`, if it belongs to test mode."""
    data: dict[str, Any] = {
        "requestId": request_id,
        "workspaceId": workspace_id,
        "integrationAccountId": account_id,
        "status": str(status),
        "reservation": record,
    }
    if is_test(account_id):
        data["test"] = True
    return data if cancellation is None else {**data, "cancellation": cancellation.as_json()}
