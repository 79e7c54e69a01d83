"""Look-ups of keys and accounts in the database, cached: entries are fresh for a few seconds, and stay usable while the database is
unavailable. Also the usage of API keys: the share of its quota that the processes used, and when it was last used."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Double, Row, Select, bindparam, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.clock import Clock
from forwarder.process.loops import detached
from forwarder.reservation.submission import is_test, live_account_id
from forwarder.tenancy import port
from forwarder.tenancy.access import Consumption
from forwarder.tenancy.port import Account, ApiKey, RateLimit, TenancyUnavailable
from forwarder.tenancy.sql import database
from forwarder.tenancy.sql.database import in_utc, insert_into, shared_key, transaction, write

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheTimes:
    """How long entries are fresh, in seconds, and how many are kept. `known`: for values; `Access` remembers callers for another
    second, and processes follow a change within five. `absent`: for "there is none". `patience`: how long a caller that has a stale
    value waits for a fresh one. `away`: the pause after a failed look-up."""

    known: float = 4.0
    absent: float = 1.0
    patience: float = 0.5
    away: float = 1.0
    max_entries: int = 10_000


class LookupCache(Generic[V]):
    """Caches what `look_up` returns, one look-up of a key at a time. Absent keys are apart: a flood of them evicts no valid one."""

    def __init__(self, look_up: Callable[[str], Awaitable[V | None]], clock: Clock, times: CacheTimes) -> None:
        self._look_up, self._clock, self._times = look_up, clock, times
        self._known: OrderedDict[str, tuple[V, float]] = OrderedDict()
        self._absent: OrderedDict[str, float] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[V | None]] = {}
        self._away_until = float("-inf")

    def __contains__(self, key: str) -> bool:
        return key in self._known

    async def get(self, key: str) -> V | None:
        """The value, or None if there is none. Raises `TenancyUnavailable` if it is not cached and cannot be looked up."""
        now = self._clock.monotonic()
        if (known := self._known.get(key)) is None:
            if now < self._absent.get(key, float("-inf")):
                return None
            if now < self._away_until:
                raise TenancyUnavailable("the database could not be reached a moment ago")
            return await asyncio.shield(self._start(key))
        value, fresh_until = known
        if now < max(fresh_until, self._away_until):
            return value
        look_up = self._start(key)
        patience = asyncio.ensure_future(self._clock.sleep(self._times.patience))
        try:
            await asyncio.wait({look_up, patience}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        if not look_up.done():
            self._note_away()
            return value
        try:
            return look_up.result()
        except TenancyUnavailable:
            return value

    def _start(self, key: str) -> asyncio.Task[V | None]:
        if (look_up := self._under_way.get(key)) is None:
            # A separate task: the first caller may be cancelled while others still wait.
            look_up = self._under_way[key] = detached(self._run(key))
            # A failure that no caller waits for is retrieved, so that asyncio does not report it.
            look_up.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return look_up

    async def _run(self, key: str) -> V | None:
        try:
            value = await self._look_up(key)
        except TenancyUnavailable:
            self._note_away()
            raise
        finally:
            del self._under_way[key]
        self._away_until = float("-inf")
        now = self._clock.monotonic()
        self._known.pop(key, None)
        self._absent.pop(key, None)
        if value is None:
            self._absent[key] = now + self._times.absent
        else:
            self._known[key] = (value, now + self._times.known)
        for entries in (self._known, self._absent):
            if len(entries) > self._times.max_entries:
                entries.popitem(last=False)
        return value

    def _note_away(self) -> None:
        self._away_until = self._clock.monotonic() + self._times.away


ACCOUNT = tuple(database.integration_accounts.c[field.name] for field in fields(Account))
# Only pushes need these columns; the other stages' database roles may not read them.
_FOR_PUSHES = "credential authorities client_certificate client_key settles_seconds same_pms_before".split()
_PUSHED_ACCOUNT = select(*ACCOUNT).where(database.integration_accounts.c.id == bindparam("wanted"))
_SERVED_ACCOUNT = _PUSHED_ACCOUNT.with_only_columns(*(each for each in ACCOUNT if each.name not in _FOR_PUSHES))
_key, _workspace = database.api_keys.c, database.workspaces.c
_KEY = (
    select(*(column for column in _key if column.name not in {"token_hash", "revoked_at", "created_at", "name"}))
    .add_columns(_workspace.limit_requests.label("shared_requests"), _workspace.limit_seconds.label("shared_seconds"))
    .join(database.workspaces, _workspace.id == _key.workspace_id)
    .where(_key.token_hash == bindparam("wanted"), _key.revoked_at.is_(None))
)


class SqlDirectory:
    """`Directory`. Tokens are cached by their hash. `shadow` makes an account's shadow, which has no row; without it there are
    none. `for_pushes`: whether accounts include the fields that only pushes need, such as credentials."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        times: CacheTimes | None = None,
        shadow: Callable[[Account], Account | None] | None = None,
        *,
        for_pushes: bool = False,
    ) -> None:
        self._engine, self._shadow, times = engine, shadow, times or CacheTimes()
        self._account = _PUSHED_ACCOUNT if for_pushes else _SERVED_ACCOUNT
        self._token_key: bytes | None = None
        self._keys = LookupCache(self._find_key, clock, times)
        self._accounts = LookupCache(self._find_account, clock, times)

    async def key(self, token: str) -> ApiKey | None:
        if self._token_key is None:
            self._token_key = await shared_key(self._engine, "token-key")
        hashed = port.token_hash(token)
        if hashed not in self._keys and not port.may_be_ours(self._token_key, token):
            return None
        key = await self._keys.get(hashed)
        return replace(key, test=True) if key is not None and port.is_test_token(token) else key

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        # PostgreSQL texts cannot contain this character, so there is no such account; a query would raise an error.
        if "\0" in account_id:
            return None
        return await self._accounts.get(account_id if workspace_id is None else f"{account_id}\0{workspace_id}")

    async def _find_key(self, hashed: str) -> ApiKey | None:
        if (row := await self._find(_KEY, hashed)) is None:
            return None
        shared = None if row.shared_requests is None else RateLimit(row.shared_requests, row.shared_seconds)
        return replace(key_of(row), shared_limit=shared)

    async def _find_account(self, wanted: str) -> Account | None:
        account_id, _, workspace_id = wanted.partition("\0")
        row = await self._find(self._account, live_account_id(account_id))
        if row is None or workspace_id not in {"", row.workspace_id}:
            return None
        if not is_test(account_id):
            return account_of(row)
        return None if self._shadow is None else self._shadow(account_of(row))

    async def _find(self, statement: Select[Any], wanted: str) -> Any:
        async with transaction(self._engine, writes=False) as connection:
            return (await connection.execute(statement, {"wanted": wanted})).one_or_none()


def limit_of(row: Row[Any]) -> RateLimit | None:
    return None if row.limit_requests is None else RateLimit(row.limit_requests, row.limit_seconds)


def key_of(row: Row[Any]) -> ApiKey:
    scopes, networks = port.read_scopes(row.scopes.split()), port.read_networks(row.networks.split())
    return ApiKey(row.id, row.workspace_id, row.test, limit_of(row), scopes, in_utc(row.expires_at), networks)


def account_of(row: Row[Any]) -> Account:
    """The account in a row of the columns `ACCOUNT`, or some of them."""
    account = Account(**row._asdict())
    same_before = in_utc(account.same_pms_before)
    return replace(account, skipped_checks=tuple(account.skipped_checks), same_pms_before=same_before)


# Seconds since 1970, without parameters, so that one statement can take many rows. SQLite counts in Julian days.
_POSTGRESQL_TIME: ColumnElement[float] = literal_column("CAST(extract(epoch FROM now()) AS DOUBLE PRECISION)", Double())
_SQLITE_TIME: ColumnElement[float] = literal_column("((julianday('now') - 2440587.5) * 86400.0)", Double())


class SqlUsage:
    """The usage of keys by all processes: one statement per exchange. By the database's time, so that the processes' clocks need
    not agree; only differences matter, and a negative one, after that clock was set back, counts as zero."""

    def __init__(self, engine: AsyncEngine, now: Callable[[], ColumnElement[float]] | None = None) -> None:
        self._engine = engine
        self._postgresql = engine.dialect.name == "postgresql"
        self._now = now or (lambda: _POSTGRESQL_TIME if self._postgresql else _SQLITE_TIME)

    async def add(self, consumed: Sequence[Consumption]) -> Mapping[str, float]:
        """Counts `consumed`, one per key; returns the used share of each key's quota, more than 1.0 if too many calls were
        admitted. Raises `TenancyUnavailable`: it was not counted, or may not have been."""
        rows = [each._asdict() for each in sorted(consumed)]  # lest two processes wait for each other's rows
        # A row has the share used at `counted_at`; a whole quota drains in `window_seconds`. A reported share counts from its
        # `counted_at`: the row had drained until then, but not below empty.
        row, now = database.key_usage.c, self._now()
        new = insert_into(self._engine, database.key_usage).values(
            key_id=bindparam("key"),
            used=bindparam("share", type_=Double()),
            window_seconds=bindparam("seconds"),
            counted_at=now - bindparam("age", type_=Double()),
        )
        left = row.used - self._larger(now - row.counted_at, 0.0) / new.excluded.window_seconds
        empty = (new.excluded.counted_at - now) / new.excluded.window_seconds
        used = self._larger(left, empty) + new.excluded.used
        values = {"used": used, "window_seconds": new.excluded.window_seconds, "counted_at": now}
        counted = new.on_conflict_do_update(index_elements=["key_id"], set_=values)
        used_now = (row.used - (now - row.counted_at) / row.window_seconds).label("used")
        async with transaction(self._engine, writes=True) as connection:
            rows_now = await connection.execute(counted.returning(row.key_id, used_now), rows)
            return {each.key_id: each.used for each in rows_now}

    def _larger(self, one: ColumnElement[Any], other: ColumnElement[Any] | float) -> ColumnElement[Any]:
        return func.greatest(one, other) if self._postgresql else func.max(one, other)


class SqlKeyUses:
    """When keys were last used. However many processes a key is used at, it is written once a minute."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def used(self, key_ids: Collection[str], at: datetime) -> None:
        """These keys were used by `at`. Raises `TenancyUnavailable`."""
        new = insert_into(self._engine, database.key_uses).values(key_id=bindparam("key"), used_at=bindparam("at"))
        newer = new.on_conflict_do_update(
            index_elements=["key_id"],
            set_={"used_at": new.excluded.used_at},
            where=database.key_uses.c.used_at <= bindparam("earlier"),
        )
        # In one order, lest two processes wait for each other's rows.
        rows = [{"key": key_id, "at": at, "earlier": at - timedelta(minutes=1)} for key_id in sorted(key_ids)]
        await write(self._engine, newer, rows)
