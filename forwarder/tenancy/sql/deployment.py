"""The keys of request ids, messages and tokens, which the processes of one deployment share through its database."""

import secrets

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.sql.database import insert_into, transaction
from forwarder.tenancy.sql.tables import deployment_secrets

_REQUEST_ID_KEY = "request-id-key"
_MESSAGE_KEY = "message-key"
_TOKEN_KEY = "token-key"  # noqa: S105 - its name
_KEY_BYTES = 32


async def request_id_key(engine: AsyncEngine) -> bytes:
    """The 32 random bytes that authenticate request ids. Raises `TenancyUnavailable`."""
    return await _shared_key(engine, _REQUEST_ID_KEY)


async def message_key(engine: AsyncEngine) -> bytes:
    """The 32 random bytes that messages on the topics are signed with. Raises `TenancyUnavailable`."""
    return await _shared_key(engine, _MESSAGE_KEY)


async def token_key(engine: AsyncEngine) -> bytes:
    """The 32-byte MAC key of API tokens, which distinguishes tokens from guesses. Raises `TenancyUnavailable`."""
    return await _shared_key(engine, _TOKEN_KEY)


async def _shared_key(engine: AsyncEngine, name: str) -> bytes:
    """The key, created by the first caller and constant from then on. Once it exists, nothing is written."""
    kept = select(deployment_secrets.c.value).where(deployment_secrets.c.name == name)
    async with transaction(engine, writes=False) as connection:
        value = (await connection.execute(kept)).scalar_one_or_none()
    if value is not None:
        return bytes.fromhex(value)
    new = insert_into(engine, deployment_secrets).values(name=name, value=secrets.token_hex(_KEY_BYTES))
    async with transaction(engine, writes=True, enlists=False) as connection:
        # If two insert at once, the second waits for the first in its INSERT, and then reads the first one's value.
        await connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
        return bytes.fromhex((await connection.execute(kept)).scalar_one())
