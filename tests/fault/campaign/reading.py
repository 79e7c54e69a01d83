"""The readers of a case: one that follows `next` while all is under fire, and one that reads everything in the end."""

import asyncio
from typing import Any

import httpx

from forwarder.reservation.outcome import Status
from tests.support.deployment.deployment import Deployment

_AGAIN_SECONDS = 0.1
_LARGEST = 200

Record = dict[str, Any]
_KEPT = ("requestId", "status", "roomId", "createdAt", "updatedAt")


class Poller:
    """Polls one account's pages and keeps its cursor, as a booking engine would. What it has left behind, it never sees again."""

    def __init__(self, deployment: Deployment, account: str, *, limit: int = 25) -> None:
        self._deployment = deployment
        self._account = account
        self._limit = limit
        self._cursor = ""
        self._left: list[str] = []
        self._page: list[str] = []
        self.outages = 0

    @property
    def seen(self) -> list[str]:
        """The request ids it met, in order; one that is there twice was shown twice."""
        return [*self._left, *self._page]

    async def poll(self) -> None:
        """Read on for ever, through outages."""
        while True:
            if not await self.read_on():
                await asyncio.sleep(_AGAIN_SECONDS)

    async def catch_up(self) -> None:
        """Read to the end of what there is now."""
        while await self.read_on():
            pass

    async def read_on(self) -> bool:
        """Read the page at the cursor: False where there is no next one yet, or no answer."""
        read = await page(self._deployment, self._account, self._cursor, self._limit)
        if read is None:
            self.outages += 1
            return False
        records, following = read
        self._page = [record["requestId"] for record in records]
        if following:
            self._left += self._page
            self._page, self._cursor = [], following
        return bool(following)


async def page(deployment: Deployment, account: str, cursor: str, limit: int) -> tuple[list[Record], str] | None:
    """One page, of every status, and where the next begins; None where there was no answer, or one that said to come again."""
    parameters = {"limit": str(limit), "status": ",".join(Status), "cursor": cursor}
    try:
        answer = await deployment.client.get(
            f"{deployment.url('query')}/api/vrs/reservations", params=parameters, headers=deployment.headers(account)
        )
    except httpx.TransportError:
        return None
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return None
    assert answer.status_code == httpx.codes.OK, answer.text
    body = answer.json()
    return [{name: record[name] for name in _KEPT} for record in body["data"]], body["meta"]["cursors"]["next"]


async def whole(deployment: Deployment, account: str) -> list[Record]:
    """Every record of the account, by following `next` from the first page; asks again where there is no answer."""
    found: list[Record] = []
    cursor = ""
    while True:
        read = await page(deployment, account, cursor, _LARGEST)
        if read is None:
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        records, cursor = read
        found += records
        if not cursor:
            return found
