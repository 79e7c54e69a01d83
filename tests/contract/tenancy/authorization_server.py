"""An authorization server whose refresh tokens change at every use: the old one works until the new access token is first used."""

import asyncio
import itertools
from datetime import UTC, datetime

from forwarder.pms.http.response import NotSent
from forwarder.pms.port import Grant

FIRST = "refresh-0"
ENDS = datetime(2027, 1, 1, 2, tzinfo=UTC)


class RotatingServer:
    """Grants; `asked` says how often, `at_once` how many asked at once at most. While `open` is not set nobody is answered.
    `strict`: an old refresh token ends with the answer that replaces it."""

    def __init__(self, *, strict: bool = False) -> None:
        self.asked = 0
        self.at_once = 0
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = asyncio.Event()
        self._strict = strict
        self._numbers = itertools.count(1)
        self._good = {FIRST}
        self._replaced: dict[str, str] = {}
        self._present = 0

    async def ask(self, latest: Grant | None) -> Grant:
        """What an adapter asks with: the credential's own token where there is no grant yet. Raises `NotSent`."""
        refresh_token = FIRST if latest is None else latest.refresh_token
        assert refresh_token is not None
        self._present += 1
        self.at_once = max(self.at_once, self._present)
        self.waiting.set()
        try:
            await self.open.wait()
            return self._answer(refresh_token)
        finally:
            self._present -= 1

    def _answer(self, refresh_token: str) -> Grant:
        if refresh_token not in self._good:
            raise NotSent("pms_unauthorized", "invalid_grant")
        self.asked += 1
        number = next(self._numbers)
        access, refresh = f"access-{number}", f"refresh-{number}"
        self._good.add(refresh)
        self._replaced[access] = refresh_token
        if self._strict:
            self._good.discard(refresh_token)
        return Grant(access, refresh, ENDS)

    def use(self, grant: Grant) -> None:
        """The access token is used for the first time: what it replaced ends."""
        self._good.discard(self._replaced.get(grant.access_token, ""))
