"""The backlog in SQL. Each account is found from the one before it by one step through an index, and only its open rows are
read."""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Executable,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.store.database import Database
from forwarder.store.sql import Moment, distinct, same_key
from forwarder.store.standing.port import AccountWork, EndpointWork, FailedWork
from forwarder.store.tables import IS_OPEN_FAILURE, reservations
from forwarder.store.tables import webhook_deliveries as deliveries

_row = reservations.c
_ONE: Final[ColumnElement[int]] = literal_column("1")
_PENDING: Final[ColumnElement[str]] = literal_column("'PENDING'")
_IN_DOUBT: Final[ColumnElement[str]] = literal_column("'IN_DOUBT'")


class SqlStanding:
    """`StandingReader` on PostgreSQL or SQLite."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._accounts, self._failed, self._endpoints = accounts(), failed(), endpoints()

    async def accounts(self, *, now: datetime) -> Sequence[AccountWork]:
        return [AccountWork(*tuple(row)) for row in await self._database.read(self._accounts, {"now": now})]

    async def failed(self) -> Sequence[FailedWork]:
        return [FailedWork(*tuple(row)) for row in await self._database.read(self._failed)]

    async def endpoints(self) -> Sequence[EndpointWork]:
        return [EndpointWork(*tuple(row)) for row in await self._database.read(self._endpoints)]


@cache
def accounts() -> Executable:
    """The columns of `AccountWork`."""
    every = distinct(true(), _row.account_id, _row.status, _row.id)
    account = every.c.value
    waiting = and_(_row.account_id == account, _row.due_at.is_not(None), _row.leased_by.is_(None))
    due = and_(waiting, _row.due_at <= bindparam("now", type_=Moment()))
    return (
        select(
            account,
            _count(_of(account, _PENDING)),
            _first(_of(account, _PENDING)),
            _count(select(_ONE).where(due)),
            select(_row.due_at).where(due).order_by(_row.due_at).limit(_ONE).scalar_subquery(),
            _count(_of(account, _IN_DOUBT)),
            _first(_of(account, _IN_DOUBT)),
        )
        .where(account.is_not(None))
        .order_by(account)
    )


@cache
def failed() -> Executable:
    """The columns of `FailedWork`."""
    of_each = (_row.account_id, func.coalesce(_row.failure_class, literal_column("'other'")))
    return select(*of_each, func.count()).where(IS_OPEN_FAILURE).group_by(_row.account_id, _row.failure_class)


@cache
def endpoints() -> Executable:
    """The columns of `EndpointWork`."""
    pending = deliveries.c.due_at.is_not(None)
    figures = (deliveries.c.endpoint_id, func.count(), func.min(deliveries.c.due_at))
    return select(*figures).where(pending).group_by(deliveries.c.endpoint_id)


def _of(account: ColumnElement[str], status: ColumnElement[str]) -> Select[Any]:
    return select(_ONE).select_from(reservations).where(_row.account_id == account, same_key(_row.status, status))


def _count(rows: Select[Any]) -> ScalarSelect[int]:
    return rows.with_only_columns(func.count()).scalar_subquery()


def _first(rows: Select[Any]) -> ScalarSelect[datetime]:
    """When the first of `rows` was accepted: ids follow the order of the log. Ordered as only the index of statuses is; otherwise
    PostgreSQL may scan all rows from the first."""
    return rows.with_only_columns(_row.accepted_at).order_by(_row.status, _row.id).limit(_ONE).scalar_subquery()
