"""The sealed texts in tenancy's tables: counts them per key, and reseals them to another key, a row at a time."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, Table, and_, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.port import Account, CannotOpen
from forwarder.tenancy.sealing.binding import of_client_key, of_credential, of_grant, of_webhook_secret
from forwarder.tenancy.sealing.registry import Keyring, Resealed
from forwarder.tenancy.sealing.texts import SEPARATOR, PublicKeySealer
from forwarder.tenancy.sql.database import transaction
from forwarder.tenancy.sql.tables import grants, integration_accounts, webhook_endpoints, webhook_secrets

_BATCH: Final = 200
_KEY_ID_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class _Kept:
    """A column of sealed texts. `bound_to` makes the binding from the values of `of`. `webhooks`: whether the webhooks key is
    used."""

    name: str
    column: Column[str]
    keys: Sequence[Column[str]]
    of: Sequence[Column[Any]]
    bound_to: Callable[..., str]
    webhooks: bool = False

    @property
    def table(self) -> Table:
        return self.column.table


def _credential(account_id: str, base_url: str, options: Mapping[str, Any]) -> str:
    return of_credential(Account(account_id, "", "", base_url, "", options=options))


_account, _grant, _hook, _earlier = integration_accounts.c, grants.c, webhook_endpoints.c, webhook_secrets.c
_KEPT: Final = (
    _Kept(
        "credentials",
        _account.credential,
        (_account.id,),
        (_account.id, _account.base_url, _account.options),
        _credential,
    ),
    _Kept("client keys", _account.client_key, (_account.id,), (_account.id,), of_client_key),
    _Kept("grants", _grant.content, _of := (_grant.account_id, _grant.credential), _of, of_grant),
    _Kept("webhook secrets", _hook.secret, (_hook.id,), (_hook.id,), of_webhook_secret, webhooks=True),
    _Kept(
        "previous webhook secrets", _hook.previous_secret, (_hook.id,), (_hook.id,), of_webhook_secret, webhooks=True
    ),
    _Kept(
        "earlier webhook secrets",
        _earlier.secret,
        (_earlier.endpoint_id,),
        (_earlier.endpoint_id,),
        of_webhook_secret,
        webhooks=True,
    ),
)


class SqlSealed:
    """Everything that is kept sealed, on PostgreSQL or SQLite. Raises `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def counts(self) -> dict[str, Counter[str]]:
        """The number of texts of each name sealed to each key id."""
        found: dict[str, Counter[str]] = {}
        async with transaction(self._engine, writes=False) as connection:
            for kept in _KEPT:
                key_id = func.substr(kept.column, 1, _KEY_ID_LENGTH)
                rows = await connection.execute(
                    select(key_id, func.count()).where(kept.column.is_not(None)).group_by(key_id)
                )
                found[kept.name] = Counter({row[0]: row[1] for row in rows})
        return found

    async def reseal(self, keyring: Keyring) -> dict[str, Resealed]:
        """Reseals texts of other keys to the active secret, row by row, and only if unchanged since they were read; so it is safe
        during operation, and to repeat."""
        return {kept.name: await self._reseal(kept, keyring) for kept in _KEPT}

    async def _reseal(self, kept: _Kept, keyring: Keyring) -> Resealed:
        pair = keyring.active.webhooks if kept.webhooks else keyring.active.accounts
        sealer = PublicKeySealer(pair.public_key)
        others = and_(kept.column.is_not(None), kept.column.not_like(f"{pair.key_id}{SEPARATOR}%"))
        wanted = select(kept.column, *kept.keys, *kept.of).where(others).order_by(*kept.keys)
        async with transaction(self._engine, writes=False) as connection:
            rows = [tuple(row) for row in await connection.execute(wanted)]
        moved = failed = 0
        for first in range(0, len(rows), _BATCH):
            async with transaction(self._engine, writes=True) as connection:
                for sealed, *rest in rows[first : first + _BATCH]:
                    keys, of = rest[: len(kept.keys)], rest[len(kept.keys) :]
                    try:
                        text = keyring.open_text(sealed, bound_to := kept.bound_to(*of))
                    except CannotOpen:
                        failed += 1
                        continue
                    same = (column == value for column, value in zip(kept.keys, keys, strict=True))
                    change = update(kept.table).where(*same, kept.column == sealed)
                    new = sealer.seal_text(text, bound_to)
                    moved += (await connection.execute(change.values({kept.column.name: new}))).rowcount
        return Resealed(moved, failed)
