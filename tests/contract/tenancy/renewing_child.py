"""A process that renews an account's grant again and again, and prints each access token once it is kept, until it is killed.

`python -m tests.contract.tenancy.renewing_child DATABASE_URL TOKEN_URL SECRET`.
What is renewed is used at once at the other side of TOKEN_URL.
"""

import asyncio
import sys

import httpx

from forwarder.pms.auth import RenewalTimes, SharedGrantKeeper
from forwarder.pms.port import Grant
from forwarder.process.clock import SystemClock
from forwarder.store.engine import open_engine
from forwarder.tenancy.sql.secrets import SqlGrants
from tests.support.sealing import keyring_of

ACCOUNT, CREDENTIAL, FIRST = "acc-1", "the credential", "first-refresh-token"
TURNS = RenewalTimes(wait_seconds=8.0, ask_seconds=2.0, overtake_seconds=3.0, pause_seconds=0.02)


async def ask(client: httpx.AsyncClient, latest: Grant | None) -> Grant:
    """As BookingSync is asked."""
    form = {
        "grant_type": "refresh_token",
        "client_id": "app",
        "client_secret": "s",
        "refresh_token": FIRST if latest is None else latest.refresh_token,
    }
    answer = (await client.post("/oauth/token", data=form)).raise_for_status().json()
    return Grant(answer["access_token"], answer["refresh_token"])


async def main(database_url: str, address: str, secret: str) -> None:
    engine = open_engine(database_url)
    rows = SqlGrants(engine, keyring_of(secret), keyring_of(secret))
    grants = SharedGrantKeeper(rows, SystemClock(), TURNS).under(CREDENTIAL)
    async with httpx.AsyncClient(base_url=address) as client:
        while True:
            used = await grants.current(ACCOUNT)
            grant = await grants.renew(ACCOUNT, used, lambda latest: ask(client, latest))
            headers = {"Authorization": f"Bearer {grant.access_token}"}
            # 401 where another process has renewed and used since: then theirs is read the next time round.
            await client.get("/api/v3/bookings", headers=headers)
            print(grant.access_token, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
