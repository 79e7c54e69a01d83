"""The short-lived keys of cards, in SQL: one per hour, created in advance, so that an ingress can work for days without the
database."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic_core import from_json, to_json
from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.port import CannotOpen
from forwarder.tenancy.sealing.cards import SealingKey
from forwarder.tenancy.sealing.keys import KeyPair
from forwarder.tenancy.sealing.registry import Keyring, Resealed
from forwarder.tenancy.sealing.wrapping import SecretWrapper, WrappedKey
from forwarder.tenancy.sql.database import insert_into, transaction
from forwarder.tenancy.sql.tables import sealing_keys

HOUR: Final = timedelta(hours=1)
AHEAD: Final = timedelta(hours=48)
"""How long an ingress can seal cards without the database."""

MARGIN: Final = timedelta(minutes=15)
"""The minimum time that a key is kept after its hour: covers publishing, and the difference of clocks."""

_row = sealing_keys.c
_PUBLIC = (_row.key_id, _row.public_key, _row.not_before, _row.not_after, _row.verify_key, _row.signature)
"""The columns that an ingress may read."""


class SqlSealingKeys:
    """`SealingKeys` on PostgreSQL or SQLite, for those who hold the secrets."""

    def __init__(self, engine: AsyncEngine, keyring: Keyring) -> None:
        self._engine = engine
        self._keyring = keyring
        self._wrapper = SecretWrapper(keyring)

    async def publish(self, *, now: datetime) -> int:
        first = now.replace(minute=0, second=0, microsecond=0)
        hours = [first + HOUR * number for number in range(AHEAD // HOUR + 1)]
        async with transaction(self._engine, writes=False) as connection:
            wanted = select(_row.not_before).where(_row.not_before >= _seconds(first))
            there = set(await connection.scalars(wanted))
        missing = [self._new(hour) for hour in hours if _seconds(hour) not in there]
        if missing:
            # If two publish at once, the first one's key of an hour is kept.
            new = insert_into(self._engine, sealing_keys).on_conflict_do_nothing()
            async with transaction(self._engine, writes=True) as connection:
                await connection.execute(new, missing)
        return len(missing)

    async def private_key(self, key_id: str) -> bytes | None:
        wanted = select(_row.secret_id, _row.private_key).where(_row.key_id == key_id)
        async with transaction(self._engine, writes=False) as connection:
            row = (await connection.execute(wanted)).one_or_none()
        if row is None:
            return None
        return self._wrapper.unwrap(WrappedKey(row.secret_id, row.private_key), _purpose(key_id))

    async def ended(self, *, now: datetime) -> Mapping[str, Mapping[int, int] | None]:
        wanted = select(_row.key_id, _row.ends).where(_row.not_after <= _seconds(now - MARGIN))
        async with transaction(self._engine, writes=False) as connection:
            rows = (await connection.execute(wanted)).all()
        return {row.key_id: None if row.ends is None else _ends(row.ends) for row in rows}

    async def note_ends(self, key_ids: Collection[str], ends: Mapping[int, int]) -> None:
        noted = update(sealing_keys).where(_row.key_id.in_(key_ids), _row.ends.is_(None))
        async with transaction(self._engine, writes=True) as connection:
            await connection.execute(noted.values(ends=to_json(dict(ends)).decode()))

    async def destroy(self, key_ids: Collection[str]) -> None:
        destroyed = delete(sealing_keys).where(_row.key_id.in_(key_ids))
        async with transaction(self._engine, writes=True) as connection:
            await connection.execute(destroyed)

    async def counts(self) -> dict[str, Counter[str]]:
        """The number of private keys that each secret wraps."""
        wanted = select(_row.secret_id, func.count()).group_by(_row.secret_id)
        async with transaction(self._engine, writes=False) as connection:
            return {"sealing keys": Counter({row[0]: row[1] for row in await connection.execute(wanted)})}

    async def reseal(self, keyring: Keyring) -> dict[str, Resealed]:
        """Wraps and signs the keys of other secrets with the active one."""
        wanted = select(sealing_keys).where(_row.secret_id != keyring.active.id)
        async with transaction(self._engine, writes=False) as connection:
            rows = (await connection.execute(wanted)).all()
        wrapper, moved, failed = SecretWrapper(keyring), 0, 0
        for row in rows:
            try:
                key = wrapper.unwrap(WrappedKey(row.secret_id, row.private_key), _purpose(row.key_id))
            except CannotOpen:
                failed += 1
                continue
            values = _signed(keyring, wrapper, KeyPair.of(key), _moment(row.not_before), _moment(row.not_after))
            change = update(sealing_keys).where(_row.key_id == row.key_id, _row.private_key == row.private_key)
            async with transaction(self._engine, writes=True) as connection:
                moved += (await connection.execute(change.values(values))).rowcount
        return {"sealing keys": Resealed(moved, failed)}

    def _new(self, not_before: datetime) -> dict[str, Any]:
        return _signed(self._keyring, self._wrapper, KeyPair.new(), not_before, not_before + HOUR)


async def load_sealing_keys(engine: AsyncEngine, *, now: datetime) -> Sequence[SealingKey]:
    """The public halves that can be sealed to from now on; whether they are trusted is the caller's to check. Raises
    `TenancyUnavailable`."""
    wanted = select(*_PUBLIC).where(_row.not_after > _seconds(now - MARGIN)).order_by(_row.not_before)
    async with transaction(engine, writes=False) as connection:
        return [_key(row) for row in await connection.execute(wanted)]


def _signed(
    keyring: Keyring, wrapper: SecretWrapper, pair: KeyPair, not_before: datetime, not_after: datetime
) -> dict[str, Any]:
    """The columns of a key that the active secret wraps and signs."""
    key = SealingKey.signed_by(keyring.active, pair, not_before, not_after)
    wrapped = wrapper.wrap(pair.private_key, _purpose(pair.key_id))
    return {
        "key_id": key.key_id,
        "public_key": key.public_key.hex(),
        "not_before": _seconds(not_before),
        "not_after": _seconds(not_after),
        "secret_id": wrapped.secret_id,
        "verify_key": key.verify_key.hex(),
        "signature": key.signature.hex(),
        "private_key": wrapped.content,
    }


def _key(row: Any) -> SealingKey:
    public_key, verify_key, signature = (
        bytes.fromhex(each) for each in (row.public_key, row.verify_key, row.signature)
    )
    return SealingKey(row.key_id, public_key, _moment(row.not_before), _moment(row.not_after), verify_key, signature)


def _ends(text: str) -> dict[int, int]:
    return {int(partition): end for partition, end in from_json(text).items()}


def _purpose(key_id: str) -> str:
    return f"sealing-key {key_id}"


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
