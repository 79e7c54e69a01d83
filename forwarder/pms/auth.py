"""Access tokens: as requests use them, renewed before they end and once when the PMS no longer takes one; and how all processes of
a deployment share an account's grants, so that a refresh token that changes at every use is never lost.

One renewal of an account, in all processes together:

    read      somebody else renewed it meanwhile           → theirs
    claim     by compare-and-swap; claimed already         → wait a while for theirs, or else `GrantsUnavailable`
    ask       the authorization server, within `ask_seconds`
    store     by compare-and-swap on the version, before anybody sees the new access token

Nothing is locked meanwhile, and no wall clock is read. If the holder of a claim dies, another process takes it over after it has
seen the claim unchanged for `overtake_seconds` on its own monotonic clock, which is longer than an `ask` may take.

Two windows are left. If a process dies between the server's response and `store`, the old refresh token stays: it works if the
server keeps it until the new access token is first used (Doorkeeper with `previous_refresh_token`), else the account needs a new
credential. A process that is stopped (not killed) within an `ask` for longer than `overtake_seconds` asks at the same time as the
one that overtook it; the first to store wins, and the other uses its grant.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictStr, ValidationError

from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.outcomes import harmless, unexpected
from forwarder.pms.http.response import NoResponse, NotSent, Response, hold_off_asked
from forwarder.pms.port import Ask, Grant, Grants, GrantsUnavailable
from forwarder.process.clock import Clock
from forwarder.reservation.parsing import decimal
from forwarder.tenancy.port import CannotOpen, TenancyUnavailable

if TYPE_CHECKING:
    from forwarder.tenancy.sql.secrets import GrantRow, SqlGrants

R = TypeVar("R")


def is_unauthorized(response: Response) -> bool:
    return response.status_code == HTTPStatus.UNAUTHORIZED


@dataclass(frozen=True, slots=True)
class Authorization:
    """One account's. Nothing of what was asked with a refused token was done by the PMS, so that it is safe to ask again.
    `ask`: asks the authorization server for the grant that follows the one given; raises `NotSent` where it gives none.
    `min_seconds`: a younger token is not replaced, even if refused: for a PMS that gives out few and means something else by it."""

    account_id: str
    grants: Grants
    clock: Clock
    ask: Callable[[Grant | None, Send], Awaitable[Grant]]
    ended: Callable[[Response], bool] = field(default=is_unauthorized, kw_only=True)
    min_seconds: float = field(default=0.0, kw_only=True)

    async def send(self, build: Callable[[str], Request], send: Send) -> Response:
        """The response to the request that `build` makes for an access token. Raises as `send`; `NotSent` without a token."""
        grant = await self._usable(self.grants.current(self.account_id))
        soon = self.clock.now() + timedelta(seconds=60)  # for so long a request may be on its way
        if grant is None or (grant.expires_at is not None and grant.expires_at <= soon):
            grant = await self._renewed(grant, send)
        response = await send(build(grant.access_token))
        min_life = timedelta(seconds=self.min_seconds)
        fresh = grant.granted_at is not None and self.clock.now() < grant.granted_at + min_life
        if fresh or not self.ended(response):
            return response
        return await send(build((await self._renewed(grant, send)).access_token))

    async def _renewed(self, used: Grant | None, send: Send) -> Grant:
        return await self._usable(self.grants.renew(self.account_id, used, lambda latest: self.ask(latest, send)))

    async def _usable(self, call: Awaitable[R]) -> R:
        try:
            return await call
        except GrantsUnavailable as error:
            detail = f"The account's access token could not be read or kept: {error}."
            raise NotSent("grants_unavailable", detail) from error
        except NoResponse as error:  # from the authorization server, which books nothing
            raise NotSent(error.reason, error.detail) from error


def no_token(response: Response, now: datetime) -> NotSent:
    """Why there is none. RFC 6749 (section 5.2) words a credential that is not accepted as 400 or 401."""
    if response.status_code in (400, 401, 403):
        detail = f"The PMS gives no access token for the account's credential (HTTP {response.status_code})."
        return NotSent("pms_unauthorized", detail)
    outcome = harmless(unexpected(response, now))
    wait = outcome.retry_after_seconds or hold_off_asked(response, now) or None
    return NotSent(outcome.reason, outcome.detail, retry_after_seconds=wait)


class _Token(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True, str_strip_whitespace=True)
    access_token: StrictStr = Field(min_length=1, validation_alias=AliasChoices("access_token", "accessToken", "token"))
    refresh_token: Any = None
    expires_in: Any = Field(None, validation_alias=AliasChoices("expires_in", "expiresIn"))


def granted(response: Response, refresh_token: str | None, now: datetime) -> Grant:
    """The grant in the response of an authorization server; what else is in it must not lose the tokens. `refresh_token`: stays in
    force if the response brings no other. Raises `NotSent` if there is no token in it."""
    try:
        token = _Token.model_validate_json(response.json_text)
    except ValidationError:
        raise NotSent("pms_answer_not_understood", "The authorization server's answer holds no token.") from None
    life, renewed = decimal(token.expires_in), token.refresh_token
    ends = now + timedelta(seconds=float(life)) if life is not None and 0 < life <= 366 * 24 * 3600 else None
    following = renewed if isinstance(renewed, str) and renewed else refresh_token
    return Grant(token.access_token, following, ends, granted_at=now)


# --- grants that all processes of a deployment share ---


@dataclass(frozen=True, slots=True)
class RenewalTimes:
    """`wait_seconds`: how long a process waits for another's renewal before it gives up for now. `ask_seconds`: the longest that an
    `ask` may take. `overtake_seconds`: how long a claim is seen unchanged before it is overtaken; longer than an `ask` and its
    bookkeeping. `pause_seconds`: between two looks."""

    wait_seconds: float = 10.0
    ask_seconds: float = 30.0
    overtake_seconds: float = 75.0
    pause_seconds: float = 0.25


class SharedGrantKeeper:
    def __init__(self, rows: "SqlGrants", clock: Clock, times: RenewalTimes) -> None:
        self._rows, self._clock, self._times = rows, clock, times
        self._kept: dict[str, SharedGrants] = {}

    def under(self, credential: str) -> "SharedGrants":
        """The grants obtained with this credential. An account that gets a new credential starts without grants."""
        if (digest := credential_digest(credential)) not in self._kept:
            self._kept[digest] = SharedGrants(self._rows, digest, self._clock, self._times)
        return self._kept[digest]

    async def finish(self) -> None:
        """Return when no renewal is under way: they go on when nobody waits for them any more. Before the transport closes."""
        await asyncio.gather(*(grants.finish() for grants in self._kept.values()))


class SharedGrants:
    """`Grants` over rows. In this process at most one renewal of an account is under way; other callers wait for it. Cancelling a
    caller does not cancel the renewal, because the server's answer must not be lost."""

    def __init__(self, rows: "SqlGrants", credential: str, clock: Clock, times: RenewalTimes) -> None:
        self._rows, self._credential, self._clock, self._times = rows, credential, clock, times
        self._claimant = secrets.token_hex(8)
        self._known: dict[str, Grant] = {}
        self._renewing: dict[str, asyncio.Task[Grant]] = {}
        self._claim_seen: dict[str, tuple[int | None, str | None, float]] = {}
        self._unstored: dict[str, tuple[int, Grant]] = {}

    async def current(self, account_id: str) -> Grant | None:
        if account_id not in self._known and (known := _grant_in(await self._read(account_id))) is not None:
            self._known[account_id] = known
        return self._known.get(account_id)

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:
        if (under_way := self._renewing.get(account_id)) is not None:
            grant = await asyncio.shield(under_way)
            if not _same(grant, used):
                return grant
        if (task := self._renewing.get(account_id)) is None:

            def done(task: asyncio.Task[Grant]) -> None:
                del self._renewing[account_id]
                # The exception is looked at, so that asyncio does not report it as overlooked.
                if not task.cancelled() and task.exception() is None:
                    self._known[account_id] = task.result()

            task = self._renewing[account_id] = asyncio.create_task(self._renewed(account_id, used, ask))
            task.add_done_callback(done)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        await asyncio.gather(*self._renewing.values(), return_exceptions=True)

    async def _renewed(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:
        give_up = self._clock.monotonic() + self._times.wait_seconds
        while True:
            kept = await self._read(account_id)
            if (grant := _grant_in(kept)) is not None and not _same(grant, used):
                return grant
            seen, claim = (None, None) if kept is None else (kept.version, kept.claim)
            now, first = self._clock.monotonic(), self._claim_seen.get(account_id)
            if first is None or first[:2] != (seen, claim):
                first = self._claim_seen[account_id] = (seen, claim, now)
            # Ours is a leftover, with nothing under way here; the holder of another is surely past its time in the end.
            if claim in (None, self._claimant) or now - first[2] >= self._times.overtake_seconds:
                mine = (account_id, self._credential, self._claimant)
                version = await _available(self._rows.claim(*mine, seen=seen, seen_claim=claim))
                if version is not None:
                    return await self._follow(account_id, version, grant or used, ask)
            elif self._clock.monotonic() >= give_up:
                raise GrantsUnavailable("another process is renewing it")
            await self._clock.sleep(self._times.pause_seconds)

    async def _follow(self, account_id: str, version: int, latest: Grant | None, ask: Ask) -> Grant:
        """Ask, then store; the claim is ours. If the last grant could not be stored, stores it now without asking again."""
        unstored = self._unstored.get(account_id)
        if unstored is not None and unstored[0] == version:
            grant = unstored[1]
        else:
            try:
                async with asyncio.timeout(self._times.ask_seconds):
                    grant = await ask(latest)
            except Exception as error:
                # Somebody who overtook us may have used up the refresh token: then theirs holds.
                kept = await self._read(account_id)
                if kept is not None and kept.version > version and (newer := _grant_in(kept)) is not None:
                    return newer
                await _available(self._rows.release(account_id, self._credential, self._claimant))
                if isinstance(error, TimeoutError):
                    raise GrantsUnavailable("the authorization server did not answer in time") from error
                raise
        self._unstored[account_id] = (version, grant)
        stored = await _available(self._rows.store(account_id, self._credential, version, grant.as_text()))
        del self._unstored[account_id]
        if stored:
            return grant
        if (newer := _grant_in(await self._read(account_id))) is None:
            raise GrantsUnavailable("it was forgotten while it was renewed")
        return newer

    async def _read(self, account_id: str) -> "GrantRow | None":
        return await _available(self._rows.read(account_id, self._credential))


async def _available(call: Awaitable[R]) -> R:
    try:
        return await call
    except (TenancyUnavailable, CannotOpen) as error:
        raise GrantsUnavailable(str(error)) from error


def credential_digest(credential: str) -> str:
    """Distinguishes a credential from others. Reveals nothing about a credential that cannot be guessed."""
    return blake2b(credential.encode(), digest_size=16, person=b"forwarder-grant").hexdigest()


def _grant_in(kept: "GrantRow | None") -> Grant | None:
    return None if kept is None or kept.content is None else Grant.from_text(kept.content)


def _same(grant: Grant, used: Grant | None) -> bool:
    return used is not None and grant.access_token == used.access_token
