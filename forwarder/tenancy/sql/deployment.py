"""The key of request ids, which the processes of one deployment share through its database."""

import secrets

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.tenancy.sql.database import insert_into, transaction
from forwarder.tenancy.sql.tables import deployment_secrets

_REQUEST_ID_KEY = "request-id-key"
_REQUEST_ID_KEY_BYTES = 32


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
