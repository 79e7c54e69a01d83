"""The deployment's secrets in its database: only their public keys and states."""

from collections.abc import Collection, Sequence

from sqlalchemy import Row, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from forwarder.tenancy.port import NotKnown
from forwarder.tenancy.sealing.keys import PublicKeys, Secret
from forwarder.tenancy.sealing.registry import KnownSecret, SecretState, active_of, check_secrets
from forwarder.tenancy.sql.database import in_utc, insert_into, transaction
from forwarder.tenancy.sql.tables import secrets


class NoSecretYet(LookupError):
    """Nothing can be sealed, because this database has no secret yet."""


class SqlSecrets:
    """The registry on PostgreSQL or SQLite. Raises `TenancyUnavailable`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def known(self) -> Sequence[KnownSecret]:
        """All secrets, retired ones included, oldest first."""
        async with transaction(self._engine, writes=False) as connection:
            return await _all(connection)

    async def admit(self, held: Sequence[Secret], *, first: bool) -> Sequence[KnownSecret]:
        """Checks that a process with these secrets may start: raises `UnknownSecret`. `first`: registers `held[0]` on a new
        database; later secrets are registered only by `add`."""
        known = await self.known()
        if first and not known:
            await self._insert(held[0], SecretState.ACTIVE)
            known = await self.known()
        check_secrets(held, known)
        return known

    async def add(self, secret: Secret) -> bool:
        """Registers a secret, to be activated once every process has it. False if it was known."""
        return await self._insert(secret, SecretState.ACCEPTED)

    async def activate(self, secret_id: str) -> None:
        """Makes the secret the active one; the one before stays accepted. Raises `NotKnown` if it is not accepted."""
        async with transaction(self._engine, writes=True) as connection:
            last = update(secrets).where(secrets.c.state == SecretState.ACTIVE.value)
            await connection.execute(last.values(state=SecretState.ACCEPTED.value))
            wanted = update(secrets).where(secrets.c.id == secret_id, secrets.c.state == SecretState.ACCEPTED.value)
            done = await connection.execute(
                wanted.values(state=SecretState.ACTIVE.value, activated_at=func.current_timestamp())
            )
            if not done.rowcount:
                raise NotKnown(f"There is no accepted secret {secret_id!r}.")

    async def retire(self, secret_id: str) -> None:
        """Retires a secret that is no longer needed. Raises `NotKnown` if it is not accepted."""
        retired = update(secrets).where(secrets.c.id == secret_id, secrets.c.state == SecretState.ACCEPTED.value)
        async with transaction(self._engine, writes=True) as connection:
            if not (await connection.execute(retired.values(state=SecretState.RETIRED.value))).rowcount:
                raise NotKnown(f"There is no accepted secret {secret_id!r}.")

    async def trusted_keys(self, verify_keys: Collection[bytes]) -> PublicKeys:
        """The public keys that are sealed to now. Raises `NotTrusted`, `NoSecretYet`."""
        active = active_of(await self.known())
        if active is None:
            raise NoSecretYet("There is no key to seal with: run `forwarder migrate` with FORWARDER_SECRET_KEY set.")
        active.keys.require_trusted(verify_keys)
        return active.keys

    async def _insert(self, secret: Secret, state: SecretState) -> bool:
        keys = secret.public_keys()
        new = insert_into(self._engine, secrets).values(
            id=keys.secret_id,
            state=state.value,
            verify_key=keys.verify_key.hex(),
            accounts_key=keys.accounts_key.hex(),
            webhooks_key=keys.webhooks_key.hex(),
            signature=keys.signature.hex(),
            activated_at=func.current_timestamp() if state is SecretState.ACTIVE else None,
        )
        # If two register the first secret at once, the index of the active secret lets only one succeed.
        async with transaction(self._engine, writes=True) as connection:
            return bool((await connection.execute(new.on_conflict_do_nothing())).rowcount)


async def _all(connection: AsyncConnection) -> list[KnownSecret]:
    rows = await connection.execute(select(secrets).order_by(secrets.c.created_at, secrets.c.id))
    return [_known(row) for row in rows]


def _known(row: Row[tuple[object, ...]]) -> KnownSecret:
    names = ("verify_key", "accounts_key", "webhooks_key", "signature")
    keys = PublicKeys(row.id, *(bytes.fromhex(getattr(row, name)) for name in names))
    activated_at = None if row.activated_at is None else in_utc(row.activated_at)
    return KnownSecret(keys, SecretState(row.state), in_utc(row.created_at), activated_at)
