"""Rows without their guests. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import Row

from forwarder.process.clock import iso
from forwarder.reservation.anonymous import anonymous_data, anonymous_problem, anonymous_record, anonymous_request
from forwarder.reservation.outcome import Status
from forwarder.store.retention.port import GuestRecord, Standing


def anonymous_row(row: Row[Any], now: datetime) -> dict[str, Any]:
    """The columns of a finished submission to anonymize, for a batch."""
    return {
        "id": row.id,
        "request": _json(anonymous_request(from_json(row.request))),
        "record": None if row.record is None else _json(anonymous_record(from_json(row.record))),
        "problem": _problem(row.problem),
        "attempts": _without_details(row.attempts),
        "cancel_problem": _problem(row.cancel_problem),
        "anonymized_at": iso(now),
    }


def anonymous_delivery(row: Row[Any]) -> dict[str, Any]:
    """The columns of a webhook delivery to anonymize."""
    event = from_json(row.body)
    data = event.get("data")
    if isinstance(data, Mapping) and isinstance(data.get("reservation"), Mapping):
        event = {**event, "data": anonymous_data(data)}
    return {"id": row.id, "body": _json(event), "attempts": _without_details(row.attempts)}


def guest_record(row: Row[Any], *, unpublished: bool) -> GuestRecord:
    """The guest's data in a row, and whether it can be erased."""
    if row.anonymized_at is not None:
        standing = Standing.ERASED
    elif row.status in _OPEN or row.due_at is not None or row.leased_by is not None:
        standing = Standing.UNFINISHED
    else:
        standing = Standing.UNPUBLISHED if unpublished else Standing.ERASABLE
    return GuestRecord(
        id=row.id,
        request_id=row.request_id,
        workspace_id=row.workspace_id,
        account_id=row.account_id,
        status=Status(row.status),
        standing=standing,
        request=from_json(row.request),
        record={} if row.record is None else from_json(row.record),
    )


_OPEN = frozenset({Status.PENDING.value, Status.IN_DOUBT.value})


def _problem(text: str | None) -> str | None:
    return None if text is None else _json(anonymous_problem(from_json(text)))


def _without_details(attempts: str) -> str:
    """The attempts without their details: a PMS, or a customer's endpoint, may echo the request."""
    return _json([{**attempt, "detail": None} for attempt in from_json(attempts)])


def _json(value: Any) -> str:
    return to_json(value, inf_nan_mode="null").decode()
