"""Converts the port's values to rows and back. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import Row

from forwarder.process.clock import iso
from forwarder.process.loops import Fault
from forwarder.reservation.evidence import NOTHING_SENT, UNKNOWN_TARGET, Came, Evidence, Push, read_evidence
from forwarder.reservation.outcome import INTERNAL_ERROR, Status
from forwarder.reservation.request import SealedCard
from forwarder.reservation.submission import NaturalKey, Submission
from forwarder.store.batches import batch_with_texts
from forwarder.store.sql import DialectName
from forwarder.store.submissions.port import Arrival, Attempt, Ended, NotedCancellation, PmsReservation, Postponed, Work


def arrival_batch(dialect: DialectName, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    rows = [
        {
            "position": position,
            "request_id": it.request_id,
            "record_id": arrival.record_id,
            "workspace_id": it.workspace_id,
            "account_id": it.account_id,
            "partition": arrival.partition,
            "log_offset": arrival.offset,
            "log_timestamp_ms": arrival.timestamp_ms,
            "operation": it.operation,
            "property_id": it.property_id,
            "room_id": it.room_id,
            # As texts: one date among them, and pydantic would have to write the whole batch.
            "arrival_date": it.arrival.isoformat(),
            "departure_date": it.departure.isoformat(),
            "fingerprint": it.fingerprint,
            "card": card_row(it.card),
            "accepted_at": iso(it.accepted_at),
            "deadline_at": iso(arrival.deadline_at),
            "trace": it.trace,
            "api_key_id": it.api_key_id,
            "target": arrival.target if arrival.held else None,
            "held": arrival.held,
            **({"keyed": False} if it.natural is None else natural_columns(it.natural)),
        }
        for position, arrival in enumerate(arrivals)
        for it in (arrival.submission,)
    ]
    texts = (each.request or to_json(each.submission.reservation) for each in arrivals)
    return batch_with_texts(dialect, rows, "request", texts)


def natural_columns(natural: NaturalKey) -> dict[str, Any]:
    own = {"natural_key": natural.key, "transaction_key": natural.transaction, "keyed": natural.keyed}
    return {**own, "same_key": natural.same, "stay_key": natural.stay}


def outcome_batch(dialect: DialectName, ended: Collection[Ended]) -> dict[str, Any]:
    rows = []
    for position, each in enumerate(ended):
        event, (before, _, after) = each.event, each.event.written
        row = {
            "position": position,
            "id": each.work_id,
            "revision": event.revision,
            "status": each.status,
            "updated_at": event.occurred_at,
            "due_at": each.look_at and iso(each.look_at),
            "attempts": [_attempt_row(attempt) for attempt in each.attempts],
            "problem": each.problem,
            "pms_reservation_id": each.pms_reservation_id,
            "cancelled_at": each.cancelled_at and iso(each.cancelled_at),
            "cancel_problem": each.cancel_problem,
            "cancel_by": each.cancel_by and iso(each.cancel_by),
            "request_id": event.request_id,
            "key": event.key,
            "occurred_at": event.occurred_at,
            "before": before.decode(),
            "after": after.decode(),
            "trace": event.trace,
            "dead_letter": each.dead_letter and asdict(each.dead_letter),
            "failure_class": each.dead_letter and each.dead_letter.failure_class,
            "evidence": each.evidence.text or None,
            "doubles": list(each.doubles) or None,
        }
        rows.append(row)
    return batch_with_texts(dialect, rows, "record", (each.event.written.record for each in ended))


def postponed_row(postponed: Postponed) -> dict[str, Any]:
    work, evidence = postponed.work, postponed.evidence
    return {
        "id": work.id,
        "revision": work.revision,
        "tries": work.tries,
        "updated_at": iso(postponed.updated_at),
        "attempts": [_attempt_row(each) for each in postponed.attempts],
        "due_at": postponed.due_at and iso(postponed.due_at),
        "possibly_sent": bool(evidence.open),
        "evidence": evidence.text or None,
    }


def resting_row(row: Row[Any], fault: Fault, *, now: datetime, due_at: datetime) -> dict[str, Any]:
    """For `leases.postpone`: a row that cannot be read, as it is, with the fault in place of its attempts."""
    same = {name: getattr(row, name) for name in ("id", "revision", "tries", "possibly_sent", "evidence")}
    return {**same, "updated_at": iso(now), "attempts": [_attempt_row(_unread(row, fault, now))], "due_at": iso(due_at)}


def _unread(row: Row[Any], fault: Fault, at: datetime) -> Attempt:
    return Attempt(row.tries + 1, "prepare", iso(at), 0, "deferred", INTERNAL_ERROR, str(fault))


def work_of(row: Row[Any] | SimpleNamespace, leased_by: str = "") -> Work:
    natural = cancellation = pms_reservation = None
    if row.natural_key is not None:
        same, stay = row.same_key, row.stay_key
        natural = NaturalKey(row.natural_key, row.transaction_key, keyed=row.keyed, same=same, stay=stay)
    if row.cancel_requested_at is not None:
        cancellation = NotedCancellation(iso(row.cancel_requested_at), row.cancel_reason)
    if row.status == Status.CONFIRMED:
        pms_reservation = PmsReservation(row.pms_reservation_id, from_json(row.record or "{}"))
    return Work(
        id=row.id,
        record_id=row.record_id,
        submission=Submission(
            request_id=row.request_id,
            workspace_id=row.workspace_id,
            account_id=row.account_id,
            operation=row.operation,
            accepted_at=row.accepted_at,
            reservation=from_json(row.request),
            fingerprint=row.fingerprint,
            card=card_in(row.card),
            trace=row.trace,
            natural=natural,
        ),
        partition=row.partition,
        created_at=iso(row.created_at),
        deadline_at=row.deadline_at,
        attempts=attempts_of(row.attempts),
        revision=row.revision,
        evidence=_evidence_in(row),
        pushing=row.pushing,
        status=Status(row.status),
        tries=row.tries,
        offset=row.log_offset,
        timestamp_ms=row.log_timestamp_ms,
        cancellation=cancellation,
        pms_reservation=pms_reservation,
        leased_by=leased_by,
        size=len(row.request) + len(row.card or ""),
        target=row.target,
        takeovers=row.takeovers,
        similar_to=tuple(from_json(row.similar_to or "[]")),
    )


def _evidence_in(row: Row[Any] | SimpleNamespace) -> Evidence:
    """The evidence of the row's pushes. If it contradicts `possibly_sent`, that decides: an operator reopened the row, or an older
    version, which wrote only the mark, left it in doubt."""
    if not row.evidence and not row.possibly_sent:  # nearly always
        return NOTHING_SENT
    # A worker pushes a row after the last record of it; what a recovery marked may have been pushed at any time.
    since = iso(row.accepted_at if row.pushing else row.updated_at)
    evidence = read_evidence(row.evidence or "").dated(iso(row.updated_at), since)
    if row.possibly_sent and not evidence.open:
        return Evidence((*evidence.lines, Push(iso(row.updated_at), UNKNOWN_TARGET, Came.AMBIGUOUS, "not_noted")))
    if evidence.open and not row.possibly_sent:
        return evidence.settled(iso(row.updated_at), "operator")
    return evidence


def unreadable_work(row: Row[Any], own: Row[Any], fault: Fault, leased_by: str) -> Work | None:
    """The readable part of a row that `work_of` cannot read, enough to end it: its ids, and of its reservation the columns in
    `own`. None for a confirmed row whose record cannot be read, because ending it would lose the reservation."""
    stay = {"arrivalDate": own.arrival_date.isoformat(), "departureDate": own.departure_date.isoformat()}
    reservation = {"propertyId": own.property_id, "roomId": own.room_id, **stay}
    readable = {
        "request": to_json(reservation).decode(),
        "attempts": to_json([_attempt_row(_unread(row, fault, row.deadline_at))]).decode(),
        "card": None,
        "similar_to": None,
        "possibly_sent": row.possibly_sent or row.pushing,
    }
    try:
        work = work_of(SimpleNamespace(**{**row._mapping, **readable}), leased_by)
    except (ValueError, TypeError):
        return None
    return replace(work, unreadable=True)


def _attempt_row(attempt: Attempt) -> dict[str, Any]:
    # `asdict` would copy each field deeply, at five times the cost.
    return {name: getattr(attempt, name) for name in Attempt.__slots__}


def attempts_of(text: str) -> tuple[Attempt, ...]:
    return tuple(Attempt(**each) for each in from_json(text))


def card_row(card: SealedCard | None) -> dict[str, str] | None:
    return None if card is None else {"keyId": card.key_id, "sealed": card.sealed}


def card_in(text: str | None) -> SealedCard | None:
    card = text and from_json(text)
    return SealedCard(card["keyId"], card["sealed"]) if card else None
