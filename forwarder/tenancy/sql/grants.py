"""Grants of authorization servers in SQL: sealed, and replaced by compare-and-swap on their version.

Every method is one short transaction: nothing is locked during a request to an authorization server.
"""

from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Executable, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.port import Sealer, Unsealer
from forwarder.tenancy.sealing import of_grant
from forwarder.tenancy.sql.database import grants, insert_into, read, transaction

_FIRST_VERSION = 0


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A stored grant, its content opened. `claim`: who is renewing it."""

    version: int
    claim: str | None
    content: str | None = field(repr=False)


class SqlGrants:
    """Grants on PostgreSQL or SQLite, a row for each account and digest of its credential. Raises `TenancyUnavailable`; `read` also
    `CannotOpen`."""

    def __init__(self, engine: AsyncEngine, sealer: Sealer, unsealer: Unsealer) -> None:
        self._engine = engine
        self._sealer = sealer
        self._unsealer = unsealer

    async def read(self, account_id: str, credential: str) -> GrantRow | None:
        wanted = select(grants.c.version, grants.c.claim, grants.c.content).where(*_of(account_id, credential))
        rows = await read(self._engine, wanted)
        if not rows:
            return None
        content = rows[0].content and self._unsealer.open_text(rows[0].content, of_grant(account_id, credential))
        return GrantRow(rows[0].version, rows[0].claim, content)

    async def claim(
        self, account_id: str, credential: str, claimant: str, *, seen: int | None, seen_claim: str | None
    ) -> int | None:
        """Claim the row that is of version `seen` and has that claim, or a new one where there was none; its version, None where it
        has changed."""
        first = insert_into(self._engine, grants).values(
            account_id=account_id, credential=credential, version=_FIRST_VERSION, claim=claimant
        )
        claimed: Executable = first.on_conflict_do_nothing().returning(grants.c.version)
        if seen is not None:
            as_seen = (grants.c.version == seen, grants.c.claim.is_not_distinct_from(seen_claim))
            changed = update(grants).where(*_of(account_id, credential), *as_seen).values(claim=claimant)
            claimed = changed.returning(grants.c.version)
        async with transaction(self._engine, writes=True) as connection:
            version: int | None = (await connection.execute(claimed)).scalar_one_or_none()
            return version

    async def store(self, account_id: str, credential: str, version: int, content: str) -> bool:
        """Replace `version` by `content` and end the claim; False where that version was replaced before."""
        stored = (
            update(grants)
            .where(*_of(account_id, credential), grants.c.version == version)
            .values(
                version=version + 1,
                claim=None,
                content=self._sealer.seal_text(content, of_grant(account_id, credential)),
            )
        )
        async with transaction(self._engine, writes=True) as connection:
            return (await connection.execute(stored)).rowcount == 1

    async def release(self, account_id: str, credential: str, claimant: str) -> None:
        """End the claim, if it is still `claimant`'s."""
        released = update(grants).where(*_of(account_id, credential), grants.c.claim == claimant).values(claim=None)
        async with transaction(self._engine, writes=True) as connection:
            await connection.execute(released)


def _of(account_id: str, credential: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return grants.c.account_id == account_id, grants.c.credential == credential
