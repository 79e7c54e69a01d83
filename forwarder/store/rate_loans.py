"""The token buckets that all workers of a deployment share, in SQL: a row for each, locked while it is decided."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.token_bucket import Loan, LoanRequest, decide
from forwarder.store.database import Database
from forwarder.store.sql import insert_into
from forwarder.store.tables import rate_buckets

_row: Final = rate_buckets.c
# Of the moment, not of the transaction's start: it may wait for another one that holds the row.
_POSTGRESQL_TIME: Final[sa.ColumnElement[float]] = sa.literal_column(
    "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)", sa.Double()
)
_SQLITE_TIME: Final[sa.ColumnElement[float]] = sa.literal_column(
    "((julianday('now') - 2440587.5) * 86400.0)", sa.Double()
)


class SqlLender:
    """Implements `Lender`: one transaction for all requests, by the database's clock."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._database = Database(engine)
        self._now = _POSTGRESQL_TIME if self._database.dialect == "postgresql" else _SQLITE_TIME
        names = _row.name.in_(sa.bindparam("names", expanding=True))
        # In one order, lest two workers wait for each other's rows.
        self._locked = sa.select(_row.name, _row.full_at).where(names).order_by(_row.name).with_for_update()
        new = insert_into(self._database.dialect, rate_buckets).values(name=sa.bindparam("key"), full_at=0.0)
        self._new = new.on_conflict_do_nothing()
        changed = sa.update(rate_buckets).where(_row.name == sa.bindparam("key"))
        self._changed = changed.values(full_at=sa.bindparam("until", type_=sa.Double()))

    async def lend(self, requests: Sequence[LoanRequest]) -> Sequence[Loan]:
        names = sorted({bucket.name for request in requests for bucket in request.buckets})
        loans: list[Loan] = []
        async with self._database.transaction() as connection:
            rows = (await connection.execute(self._locked, {"names": names})).all()
            if len(rows) < len(names):
                await connection.execute(self._new, [{"key": name} for name in names])
                rows = (await connection.execute(self._locked, {"names": names})).all()
            now = await connection.scalar(sa.select(self._now))
            full_at: dict[str, float] = {row.name: row.full_at for row in rows}
            for request in requests:
                loan, after = decide(request, full_at, float(now or 0.0))
                full_at |= after
                loans.append(loan)
            await connection.execute(self._changed, [{"key": name, "until": full_at[name]} for name in names])
        return loans
