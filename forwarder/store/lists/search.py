"""Operators' searches: choosing the candidate rows, and checking them. No I/O.

A search reads candidates, newest first, a bounded number at a time: an index has the ids of one account and status, or property, in
order, as others do for one PMS id, or one transaction. The other filters are checked on the candidates' rows: in SQL where a
database can, and the rest here.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final, Literal

from pydantic_core import from_json
from sqlalchemy import (
    JSON,
    ColumnElement,
    Integer,
    Select,
    Text,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from forwarder.reservation.outcome import Status
from forwarder.store.lists.port import SubmissionFilter
from forwarder.store.lists.statements import of_each
from forwarder.store.sql import DialectName, batch_of, distinct, key_among
from forwarder.store.submissions.statements.duplicates import POSSIBLE_STATUSES
from forwarder.store.tables import recognised_by, reservations

_row = reservations.c
_before = bindparam("before", type_=_row.id.type)
_max_rows = bindparam("max_rows", type_=Integer)
_ONE: Final[ColumnElement[int]] = literal_column("1")
_WAITING: Final = frozenset({Status.PENDING, Status.IN_DOUBT, Status.FAILED})
"""The statuses that few submissions have."""
_IMPOSSIBLE: Final = (Status.FAILED, Status.REJECTED)
_MAX_RUNS: Final = 64
_MIN_DIGITS: Final = 6

Lead = Literal["pms", "property", "status", "id"]
"""The key by which candidates are found. `id`: every row is one."""


def lead_of(wanted: SubmissionFilter) -> Lead:
    """The filter that probably leaves the fewest candidates. Merging the runs of many accounts costs more than scanning all
    rows, unless for statuses that few rows have."""
    if wanted.pms_reservation_id is not None:
        return "pms"
    if wanted.property_id is not None:
        return "property"
    few = _statuses(wanted) <= _WAITING or len(wanted.accounts) * len(wanted.statuses) <= _MAX_RUNS
    return "status" if few or wanted.transaction_keys is not None else "id"


def is_exact(wanted: SubmissionFilter, lead: Lead) -> bool:
    """Whether every candidate matches."""
    times = (wanted.accepted_before, wanted.accepted_since)
    if any((wanted.reason, *times, wanted.guest, wanted.transaction_keys)):
        return False
    return lead == "status" or (lead == "property" and wanted.statuses == frozenset(Status))


def runs_of(wanted: SubmissionFilter, lead: Lead) -> list[dict[str, Any]]:
    """The batch of `candidates`: for each account the keys of its runs."""
    match lead:
        case "pms" | "id":
            return [{"value": wanted.pms_reservation_id}]
        case "property":
            return [{"account_id": each, "value": wanted.property_id} for each in wanted.accounts]
        case "status":
            statuses = sorted(_statuses(wanted))
            return [{"account_id": each, "value": status} for each, status in product(wanted.accounts, statuses)]


def _statuses(wanted: SubmissionFilter) -> frozenset[Status]:
    """The statuses whose runs to read; with transaction keys only those that the transactions' index lacks."""
    return wanted.statuses if wanted.transaction_keys is None else wanted.statuses & {*_IMPOSSIBLE}


def candidates(dialect: DialectName, lead: Lead) -> Select[Any]:
    """The ids of the newest `max_rows` candidates below `before`, for a batch by `runs_of`."""
    if lead == "id":
        return select(_row.id).where(_row.id < _before).order_by(_row.id.desc()).limit(_max_rows)
    runs = batch_of(_row.account_id, column("value", Text()))
    key = {"pms": _row.pms_reservation_id, "property": _row.property_id, "status": _row.status}[lead]
    rows = select(_row.id).where(*([] if lead == "pms" else [_row.account_id == runs.c.account_id]))
    if dialect == "postgresql":
        # Bounds on the order instead of equalities, so that only the intended index serves it: see `statements`.
        run = rows.where(tuple_(key, _row.id) < tuple_(runs.c.value, _before), key >= runs.c.value)
        run = run.order_by(key.desc(), _row.id.desc())
    else:
        run = rows.where(key == runs.c.value, _row.id < _before).order_by(_row.id.desc())
    found = of_each(dialect, runs, run.limit(_max_rows).correlate(runs))
    return found.order_by(found.selected_columns.id.desc()).limit(_max_rows)


def edges() -> Select[Any]:
    """The lowest and the highest id."""
    return select(func.min(_row.id).label("first"), func.max(_row.id).label("last"))


def next_from() -> Select[Any]:
    """The first row at or above `before`: its id, and when it was accepted and ingested."""
    return select(_row.id, _row.accepted_at, _row.created_at).where(_row.id >= _before).order_by(_row.id).limit(_ONE)


def of_transactions() -> Select[Any]:
    """The ids of submissions with one of a batch of transaction keys that may have a reservation."""
    keys = batch_of(_row.transaction_key)
    recognised = key_among(recognised_by(_row), select(keys.c.transaction_key))
    # Literally the index's condition, or PostgreSQL cannot use it.
    return select(_row.id).where(recognised, _row.natural_key.is_not(None), _row.status.in_(POSSIBLE_STATUSES))


def among(dialect: DialectName, wanted: SubmissionFilter, columns: Sequence[ColumnElement[Any]]) -> Select[Any]:
    """These columns, newest first, of the rows of a batch of ids that may match; `is_wanted` decides."""
    batch = batch_of(_row.id)
    rows = select(*columns).where(key_among(_row.id, select(batch.c.id)))
    return rows.where(*_conditions(dialect, wanted)).order_by(_row.id.desc())


def _conditions(dialect: DialectName, wanted: SubmissionFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.statuses != frozenset(Status):
        conditions.append(_row.status.in_(sorted(wanted.statuses)))
    if wanted.property_id is not None:
        conditions.append(_row.property_id == wanted.property_id)
    if wanted.accepted_before is not None:
        conditions.append(_row.accepted_at < wanted.accepted_before)
    if wanted.accepted_since is not None:
        conditions.append(_row.accepted_at >= wanted.accepted_since)
    if wanted.pms_reservation_id is not None:
        conditions.append(_row.pms_reservation_id == wanted.pms_reservation_id)
    if wanted.transaction_keys is not None:
        conditions.append(_row.transaction_key.in_(sorted(wanted.transaction_keys.values())))
    if wanted.reason is not None:
        named = f'"{wanted.reason}"'
        conditions.append(
            or_(_row.attempts.contains(named, autoescape=True), _row.problem.contains(named, autoescape=True))
        )
    if wanted.guest is not None:
        conditions += _guest_conditions(dialect, wanted.guest)
    return conditions


def _guest_conditions(dialect: DialectName, guest: str) -> list[ColumnElement[bool]]:
    """Conditions on the guest. A database folds only some letters: others match any character, and `is_wanted` checks again."""
    if digits := _phone_digits(guest):
        return [cast(_phone(dialect), Text).like(f"%{'%'.join(digits)}%")]
    loosely = ("".join(each if each.isascii() and each.isalnum() else "%" for each in word) for word in guest.split())
    return [_row.request.ilike(f"%{word}%") for word in loosely]


def _phone(dialect: DialectName) -> ColumnElement[Any]:
    if dialect == "postgresql":
        return func.json_extract_path_text(cast(_row.request, JSON), "guest", "phone")
    return func.json_extract(_row.request, "$.guest.phone")


def is_wanted(wanted: SubmissionFilter, account_id: str, request: str | None, reasons: Sequence[str | None]) -> bool:
    """The checks that the database cannot make on a row from `among`. `request`: its JSON text, for a guest."""
    if account_id not in wanted.accounts or (wanted.reason is not None and wanted.reason not in reasons):
        return False
    return wanted.guest is None or request is None or _is_guest(wanted.guest, from_json(request).get("guest") or {})


def _is_guest(wanted: str, guest: Mapping[str, Any]) -> bool:
    if digits := _phone_digits(wanted):
        return digits in _digits(str(guest.get("phone") or ""))
    names = " ".join(str(guest[each]) for each in ("name", "firstName", "lastName", "email") if guest.get(each))
    return all(word in names.casefold() for word in wanted.casefold().split())


def _phone_digits(text: str) -> str:
    """The digits of `text` if it is a phone number; otherwise empty."""
    digits = _digits(text)
    is_phone = len(digits) >= _MIN_DIGITS and not any(each.isalpha() or each == "@" for each in text)
    return digits if is_phone else ""


def _digits(text: str) -> str:
    return "".join(each for each in text if each.isdecimal()).lstrip("0")


def accounts() -> Select[Any]:
    """The accounts that have submissions, each with its workspace, by one index step for each."""
    found = distinct(_row.account_id.is_not(None), _row.account_id, _row.status)
    first = select(_row.workspace_id).where(_row.account_id == found.c.value).order_by(_row.status, _row.id).limit(_ONE)
    whose = first.correlate(found).scalar_subquery().label("workspace_id")
    return select(found.c.value.label("account_id"), whose).where(found.c.value.is_not(None))
