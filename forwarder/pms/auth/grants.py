"""An account's grants from an authorization server: access tokens that expire, refresh tokens that change at every use.

Grants outlive processes and are shared by all of them: `shared_grants` keeps them so. Here is what the adapters see, and the
keeping in memory that will do where nothing rotates.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, Self

from pydantic_core import from_json, to_json

Ask = Callable[["Grant | None"], Awaitable["Grant"]]
"""Asks the authorization server for the grant that follows the one given; None where there was none yet. What it raises goes
through `renew`, and nothing is changed."""


@dataclass(frozen=True, slots=True)
class Grant:
    """In the clear: in memory only. `expires_at`: when the access token ends; None where it is not known to. `granted_at`: when it
    was granted, by the clock of the process that asked; None where nothing depends on it."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None
    granted_at: datetime | None = None

    def as_text(self) -> str:
        """To be sealed, and read again by `from_text`."""
        parts = {
            "accessToken": self.access_token,
            "refreshToken": self.refresh_token,
            "expiresAt": self.expires_at,
            "grantedAt": self.granted_at,
        }
        return to_json(parts).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        parts: dict[str, Any] = from_json(text)
        return cls(
            parts["accessToken"], parts["refreshToken"], _moment(parts["expiresAt"]), _moment(parts.get("grantedAt"))
        )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class GrantsUnavailable(Exception):
    """Grants could not be read or kept, so that none may be used."""


class Grants(Protocol):
    """Keeps one grant for each account. Raises `GrantsUnavailable`."""

    async def current(self, account_id: str) -> Grant | None:
        """The latest that is known; may be a little older than what another process has."""
        ...

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:
        """The grant that follows `used`: the one that somebody else renewed meanwhile, or else what `ask` brings, kept for good
        before it is returned. At most one `ask` for an account is under way, in all processes together."""
        ...


class LentGrant:
    """`Grants` that has one grant of somebody else's, for who must not renew it: a refresh token that is asked for and lost is lost
    to its owner too."""

    def __init__(self, grant: Grant | None) -> None:
        self._grant = grant

    async def current(self, account_id: str) -> Grant | None:  # noqa: ARG002 - the port's
        return self._grant

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:  # noqa: ARG002 - the port's
        raise GrantsUnavailable("the access token was lent, and is not renewed here")


class MemoryGrants:
    """`Grants` of this process alone, forgotten with it."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def current(self, account_id: str) -> Grant | None:
        return self._grants.get(account_id)

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:
        async with self._asking[account_id]:
            known = self._grants.get(account_id)
            if known is None or known == used:
                known = self._grants[account_id] = await ask(known or used)
            return known
