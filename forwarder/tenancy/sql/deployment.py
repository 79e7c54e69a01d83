"""Keys that the processes of one deployment share through its database: the public key to seal with, and the request-id key."""

import secrets

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.sealing import KeyPair, PublicKeySealer
from forwarder.tenancy.sql.database import insert_into, transaction
from forwarder.tenancy.sql.tables import deployment_secrets, sealing_keys

_REQUEST_ID_KEY = "request-id-key"
_REQUEST_ID_KEY_BYTES = 32


class NoSealingKey(LookupError):
    """No public key was published, so nothing can be sealed."""


async def publish_key(engine: AsyncEngine, secret: str) -> str:
    """Publish the public key of `secret`, so that every process can seal to it; its id. Publishing a key again does not bring it
    back into use after a newer one replaced it. Raises `TenancyUnavailable`."""
    pair = KeyPair.from_secret(secret)
    new = insert_into(engine, sealing_keys).values(key_id=pair.key_id, public_key=pair.public_key.hex())
    async with transaction(engine, writes=True) as connection:
        await connection.execute(new.on_conflict_do_nothing(index_elements=["key_id"]))
    return pair.key_id


async def load_sealer(engine: AsyncEngine) -> PublicKeySealer:
    """A sealer with the newest public key. Raises `NoSealingKey`, `TenancyUnavailable`."""
    newest = select(sealing_keys.c.key_id, sealing_keys.c.public_key).order_by(sealing_keys.c.id.desc()).limit(1)
    async with transaction(engine, writes=False) as connection:
        row = (await connection.execute(newest)).one_or_none()
    if row is None:
        raise NoSealingKey("There is no key to seal cards with: run `forwarder migrate` with FORWARDER_SECRET_KEY set.")
    return PublicKeySealer(row.key_id, bytes.fromhex(row.public_key))


async def request_id_key(engine: AsyncEngine) -> bytes:
    """The 32 random bytes that authenticate request ids: created by the first caller, the same for everyone ever after. Raises
    `TenancyUnavailable`."""
    kept = select(deployment_secrets.c.value).where(deployment_secrets.c.name == _REQUEST_ID_KEY)
    new = insert_into(engine, deployment_secrets).values(
        name=_REQUEST_ID_KEY, value=secrets.token_hex(_REQUEST_ID_KEY_BYTES)
    )
    async with transaction(engine, writes=True) as connection:
        # Of two at once, the second waits in its INSERT for the first, and then reads the first one's value.
        await connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
        return bytes.fromhex((await connection.execute(kept)).scalar_one())
