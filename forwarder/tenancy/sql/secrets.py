"""The deployment's secrets in its database: only their public keys and states; what is sealed to them; the short-lived keys of
cards; and the grants of authorization servers, replaced by compare-and-swap on their version.

Cards' keys are created in advance, one per hour, so that an ingress can work for days without the database."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from pydantic_core import from_json, to_json
from sqlalchemy import Column, ColumnElement, Executable, Update, and_, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy import sealing
from forwarder.tenancy.port import Account, CannotOpen, NotKnown, Sealer, Unsealer
from forwarder.tenancy.sealing import Keyring, KnownSecret, SealingKey, Secret, SecretState
from forwarder.tenancy.sql import database
from forwarder.tenancy.sql.database import in_utc, insert_into, read, transaction, write

_secret = database.secrets.c
_PUBLIC = ("verify_key", "accounts_key", "webhooks_key", "signature")  # of a secret's `PublicKeys`, in hexadecimal


class NoSecretYet(LookupError):
    """Nothing can be sealed, because this database has no secret yet."""


class SqlSecrets:
    """The registry. Raises `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def known(self) -> Sequence[KnownSecret]:
        found = select(database.secrets).order_by(_secret.created_at, _secret.id)
        known = []
        for row in await read(self._engine, found):
            keys = sealing.PublicKeys(row.id, *(bytes.fromhex(getattr(row, name)) for name in _PUBLIC))
            known.append(KnownSecret(keys, SecretState(row.state), in_utc(row.created_at), in_utc(row.activated_at)))
        return known

    async def admit(self, held: Sequence[Secret], *, first: bool) -> Sequence[KnownSecret]:
        """Checks that a process with these secrets may start: raises `UnknownSecret`. `first`: registers `held[0]` if none is."""
        known = await self.known()
        if first and not known:
            await self.add(held[0], SecretState.ACTIVE)
            known = await self.known()
        sealing.check_secrets(held, known)
        return known

    async def activate(self, secret_id: str) -> None:
        """Makes the secret the active one; the one before stays accepted. Raises `NotKnown` if it is not accepted."""
        async with transaction(self._engine, writes=True) as connection:
            last = update(database.secrets).where(_secret.state == SecretState.ACTIVE.value)
            await connection.execute(last.values(state=SecretState.ACCEPTED.value))
            new = {"state": SecretState.ACTIVE.value, "activated_at": func.current_timestamp()}
            if not (await connection.execute(_accepted(secret_id).values(new))).rowcount:
                raise NotKnown(f"There is no accepted secret {secret_id!r}.")

    async def retire(self, secret_id: str) -> None:
        """Retires a secret that is no longer needed. Raises `NotKnown` if it is not accepted."""
        if not await write(self._engine, _accepted(secret_id).values(state=SecretState.RETIRED.value)):
            raise NotKnown(f"There is no accepted secret {secret_id!r}.")

    async def trusted_keys(self, verify_keys: Collection[bytes]) -> sealing.PublicKeys:
        """The public keys that are sealed to now. Raises `NotTrusted`, `NoSecretYet`."""
        active = sealing.active_of(await self.known())
        if active is None:
            raise NoSecretYet("There is no key to seal with: run `forwarder migrate` with FORWARDER_SECRET_KEY set.")
        active.keys.require_trusted(verify_keys)
        return active.keys

    async def add(self, secret: Secret, state: SecretState = SecretState.ACCEPTED) -> bool:
        """Registers a secret, to be activated once every process has it. False if it was known."""
        keys = secret.public_keys()
        public = {name: getattr(keys, name).hex() for name in _PUBLIC}
        at = func.current_timestamp() if state is SecretState.ACTIVE else None
        values = {"id": keys.secret_id, "state": state.value, "activated_at": at, **public}
        new = insert_into(self._engine, database.secrets).values(values)
        # If two register the first secret at once, the index of the active secret lets only one succeed.
        return bool(await write(self._engine, new.on_conflict_do_nothing()))


def _accepted(secret_id: str) -> Update:
    return update(database.secrets).where(_secret.id == secret_id, _secret.state == SecretState.ACCEPTED.value)


class _Kept(NamedTuple):
    """A column of sealed texts. `bound_to` makes the binding from the values of `of`. `webhooks`: the webhooks key is used."""

    name: str
    column: Column[str]
    of: Sequence[Column[Any]]
    bound_to: Callable[..., str]
    webhooks: bool = False


def _bound(account_id: str, base_url: str, options: Mapping[str, Any]) -> str:
    return sealing.of_credential(Account(account_id, "", "", base_url, "", options=options))


_account, _grant, _hook = database.integration_accounts.c, database.grants.c, database.webhook_endpoints.c
_earlier, _hook_secret = database.webhook_secrets.c, sealing.of_webhook_secret
_BATCH: Final = 200  # texts that are resealed in one transaction

_KEPT: Final = (
    _Kept("credentials", _account.credential, (_account.id, _account.base_url, _account.options), _bound),
    _Kept("client keys", _account.client_key, (_account.id,), sealing.of_client_key),
    _Kept("grants", _grant.content, (_grant.account_id, _grant.credential), sealing.of_grant),
    _Kept("webhook secrets", _hook.secret, (_hook.id,), _hook_secret, webhooks=True),
    _Kept("webhook headers", _hook.headers, (_hook.id, _hook.url), sealing.of_webhook_headers, webhooks=True),
    _Kept("previous webhook secrets", _hook.previous_secret, (_hook.id,), _hook_secret, webhooks=True),
    _Kept("earlier webhook secrets", _earlier.secret, (_earlier.endpoint_id,), _hook_secret, webhooks=True),
)


class SqlSealed:
    """Everything that is kept sealed, on PostgreSQL or SQLite. Raises `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def counts(self) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for kept in _KEPT:
            key_id = func.substr(kept.column, 1, 16)  # its length
            texts = select(key_id.label("id"), func.count().label("texts")).where(kept.column.is_not(None))
            found[kept.name] = Counter({row.id: row.texts for row in await read(self._engine, texts.group_by(key_id))})
        return found

    async def reseal(self, keyring: Keyring) -> dict[str, sealing.Resealed]:
        """Reseals texts of other keys to the active secret, if unchanged since read: safe during operation, and to repeat."""
        return {kept.name: await self._reseal(kept, keyring) for kept in _KEPT}

    async def _reseal(self, kept: _Kept, keyring: Keyring) -> sealing.Resealed:
        pair = keyring.active.webhooks if kept.webhooks else keyring.active.accounts
        sealer = sealing.PublicKeySealer(pair.public_key)
        others = and_(kept.column.is_not(None), kept.column.not_like(f"{pair.key_id}.%"))
        keys = list(kept.column.table.primary_key)
        wanted = select(kept.column, *keys, *kept.of).where(others).order_by(*keys)
        rows = [tuple(row) for row in await read(self._engine, wanted)]
        moved = failed = 0
        for first in range(0, len(rows), _BATCH):
            async with transaction(self._engine, writes=True) as connection:
                for sealed, *rest in rows[first : first + _BATCH]:
                    try:
                        text = keyring.open_text(sealed, bound_to := kept.bound_to(*rest[len(keys) :]))
                    except CannotOpen:
                        failed += 1
                        continue
                    same = (column == value for column, value in zip(keys, rest, strict=False))
                    change = update(kept.column.table).where(*same, kept.column == sealed)
                    new = {kept.column.name: sealer.seal_text(text, bound_to)}
                    moved += (await connection.execute(change.values(new))).rowcount
        return sealing.Resealed(moved, failed)


HOUR: Final = timedelta(hours=1)
AHEAD: Final = timedelta(hours=48)  # how long an ingress can seal cards without the database
MARGIN: Final = timedelta(minutes=15)
"""The minimum time that a key is kept after its hour: covers publishing, and the difference of clocks."""
_row = database.sealing_keys.c


class SealingKeys:
    """The keys that cards are sealed to on the topic, for holders of the secrets. Raises `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine, keyring: Keyring) -> None:
        self._engine, self._keyring = engine, keyring

    async def publish(self, *, now: datetime) -> int:
        first = now.replace(minute=0, second=0, microsecond=0)
        hours = [first + HOUR * number for number in range(AHEAD // HOUR + 1)]
        wanted = select(_row.not_before).where(_row.not_before >= int(first.timestamp()))
        there = {row.not_before for row in await read(self._engine, wanted)}
        new_hours = [hour for hour in hours if int(hour.timestamp()) not in there]
        missing = [_signed(self._keyring, sealing.KeyPair.new(), hour, hour + HOUR) for hour in new_hours]
        if missing:
            # If two publish at once, the first one's key of an hour is kept.
            await write(
                self._engine, insert_into(self._engine, database.sealing_keys).on_conflict_do_nothing(), missing
            )
        return len(missing)

    async def private_key(self, key_id: str) -> bytes | None:
        """The private key; None if it was destroyed, or never existed. Raises `CannotOpen` if this process lacks its secret."""
        rows = await read(self._engine, select(_row.secret_id, _row.private_key).where(_row.key_id == key_id))
        wrapped = sealing.WrappedKey(rows[0].secret_id, rows[0].private_key) if rows else None
        return wrapped and self._keyring.unwrap(wrapped, f"sealing-key {key_id}")

    async def ended(self, *, now: datetime) -> Mapping[str, Mapping[int, int] | None]:
        """The expired keys, by id; and the end offsets of the partitions noted after their expiry, None if not noted yet."""
        wanted = select(_row.key_id, _row.ends).where(_row.not_after <= int((now - MARGIN).timestamp()))
        return {
            row.key_id: None if row.ends is None else {int(each): end for each, end in from_json(row.ends).items()}
            for row in await read(self._engine, wanted)
        }

    async def note_ends(self, key_ids: Collection[str], ends: Mapping[int, int]) -> None:
        noted = update(database.sealing_keys).where(_row.key_id.in_(key_ids), _row.ends.is_(None))
        await write(self._engine, noted.values(ends=to_json(dict(ends)).decode()))

    async def destroy(self, key_ids: Collection[str]) -> None:
        await write(self._engine, delete(database.sealing_keys).where(_row.key_id.in_(key_ids)))

    async def counts(self) -> dict[str, Counter[str]]:
        wanted = select(_row.secret_id, func.count().label("wrapped")).group_by(_row.secret_id)
        return {"sealing keys": Counter({row.secret_id: row.wrapped for row in await read(self._engine, wanted)})}

    async def reseal(self, keyring: Keyring) -> dict[str, sealing.Resealed]:
        """Wraps and signs the keys of other secrets with the active one."""
        wanted = select(database.sealing_keys).where(_row.secret_id != keyring.active.id)
        moved = failed = 0
        for row in await read(self._engine, wanted):
            try:
                key = keyring.unwrap(sealing.WrappedKey(row.secret_id, row.private_key), f"sealing-key {row.key_id}")
            except CannotOpen:
                failed += 1
                continue
            values = _signed(keyring, sealing.KeyPair.of(key), _moment(row.not_before), _moment(row.not_after))
            change = update(database.sealing_keys).where(_row.key_id == row.key_id, _row.private_key == row.private_key)
            moved += await write(self._engine, change.values(values))
        return {"sealing keys": sealing.Resealed(moved, failed)}


async def load_sealing_keys(engine: AsyncEngine, *, now: datetime) -> Sequence[SealingKey]:
    """The public halves to seal to from now on; whether they are trusted is the caller's to check. Raises `TenancyUnavailable`."""
    public = select(_row.key_id, _row.public_key, _row.not_before, _row.not_after, _row.verify_key, _row.signature)
    keys, usable = [], _row.not_after > int((now - MARGIN).timestamp())
    for row in await read(engine, public.where(usable).order_by(_row.not_before)):
        public_key, verify_key, signature = map(bytes.fromhex, (row.public_key, row.verify_key, row.signature))
        from_until = _moment(row.not_before), _moment(row.not_after)
        keys.append(SealingKey(row.key_id, public_key, *from_until, verify_key, signature))
    return keys


def _signed(keyring: Keyring, pair: sealing.KeyPair, not_before: datetime, not_after: datetime) -> dict[str, Any]:
    key = SealingKey.signed_by(keyring.active, pair, not_before, not_after)
    wrapped = keyring.wrap(pair.private_key, f"sealing-key {pair.key_id}")
    public = {name: getattr(key, name).hex() for name in ("public_key", "verify_key", "signature")}
    times = {"not_before": int(not_before.timestamp()), "not_after": int(not_after.timestamp())}
    return {"key_id": key.key_id, **public, **times, "secret_id": wrapped.secret_id, "private_key": wrapped.content}


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A stored grant, its content opened. `claim`: who is renewing it."""

    version: int
    claim: str | None
    content: str | None = field(repr=False)


class SqlGrants:
    """A row for each account and digest of its credential. Raises `TenancyUnavailable`; `read` also `CannotOpen`."""

    def __init__(self, engine: AsyncEngine, sealer: Sealer, unsealer: Unsealer) -> None:
        self._engine, self._sealer, self._unsealer = engine, sealer, unsealer

    async def read(self, account_id: str, credential: str) -> GrantRow | None:
        wanted = select(_grant.version, _grant.claim, _grant.content).where(*_grant_of(account_id, credential))
        for row in await read(self._engine, wanted):
            bound_to = sealing.of_grant(account_id, credential)
            return GrantRow(row.version, row.claim, row.content and self._unsealer.open_text(row.content, bound_to))
        return None

    async def claim(
        self, account_id: str, credential: str, claimant: str, *, seen: int | None, seen_claim: str | None
    ) -> int | None:
        """Claims the row as it was seen, or a new one where there was none; its version, None where it has changed."""
        first = insert_into(self._engine, database.grants).values(
            account_id=account_id, credential=credential, version=0, claim=claimant
        )
        claimed: Executable = first.on_conflict_do_nothing().returning(_grant.version)
        if seen is not None:
            as_seen = (_grant.version == seen, _grant.claim.is_not_distinct_from(seen_claim))
            changed = update(database.grants).where(*_grant_of(account_id, credential), *as_seen)
            claimed = changed.values(claim=claimant).returning(_grant.version)
        async with transaction(self._engine, writes=True) as connection:
            return cast("int | None", (await connection.execute(claimed)).scalar_one_or_none())

    async def store(self, account_id: str, credential: str, version: int, content: str) -> bool:
        """Replace `version` by `content` and end the claim; False where that version was replaced before."""
        sealed = self._sealer.seal_text(content, sealing.of_grant(account_id, credential))
        stored = update(database.grants).where(*_grant_of(account_id, credential), _grant.version == version)
        return await write(self._engine, stored.values(version=version + 1, claim=None, content=sealed)) == 1

    async def release(self, account_id: str, credential: str, claimant: str) -> None:
        released = update(database.grants).where(*_grant_of(account_id, credential), _grant.claim == claimant)
        await write(self._engine, released.values(claim=None))


def _grant_of(account_id: str, credential: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _grant.account_id == account_id, _grant.credential == credential
