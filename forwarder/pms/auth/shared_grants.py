"""Grants that all processes of a deployment share, so that a refresh token that changes at every use is never lost.

One renewal of an account, in all processes together:

    read      somebody else renewed it meanwhile           → theirs
    claim     by compare-and-swap; claimed already         → wait a while for theirs, or else `GrantsUnavailable`
    ask       the authorization server, within `ask_seconds`
    store     by compare-and-swap on the version, before anybody sees the new access token

Nothing is locked meanwhile, and no wall clock is read. If the holder of a claim dies, another process takes it over
after it has seen the claim unchanged for `overtake_seconds` on its own monotonic clock, which is longer than an `ask` may take.

Two windows are left. A process that dies between the server's response and `store` leaves the old refresh token in place: that is
well where the server keeps it until the new access token is first used (Doorkeeper does, where its table has the column
`previous_refresh_token`), and needs a new credential where it does not. A process that is stopped (not killed) within an `ask` for
longer than `overtake_seconds` asks at the same time as the one that overtook it; the first to store wins, and the other uses
its grant.
"""

import asyncio
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Self, TypeVar

from forwarder.pms.auth.grants import Ask, Grant, GrantsUnavailable
from forwarder.process.clock import Clock
from forwarder.tenancy.port import CannotOpen, TenancyUnavailable

if TYPE_CHECKING:
    from forwarder.tenancy.sql.grants import GrantRow, SqlGrants

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RenewalTimes:
    """How long processes wait for each other's renewals. Times are in seconds.

    `wait_seconds`: how long one waits for another's renewal before it gives up for now. `ask_seconds`: the longest that an `ask`
    may take. `overtake_seconds`: how long a claim is seen unchanged before it is overtaken; longer than an `ask` and its
    bookkeeping. `pause_seconds`: between two looks.
    """

    wait_seconds: float = 10.0
    ask_seconds: float = 30.0
    overtake_seconds: float = 75.0
    pause_seconds: float = 0.25

    @classmethod
    def within(cls, push_seconds: float) -> Self:
        """Those that fit a push time-out."""
        return cls(wait_seconds=push_seconds / 3, ask_seconds=push_seconds, overtake_seconds=2 * push_seconds + 15.0)


class SharedGrantKeeper:
    """The grants of a deployment, by the credential that they were obtained with."""

    def __init__(self, rows: "SqlGrants", clock: Clock, times: RenewalTimes) -> None:
        self._rows = rows
        self._clock = clock
        self._times = times
        self._kept: dict[str, SharedGrants] = {}

    def under(self, credential: str) -> "SharedGrants":
        """The grants obtained with this credential. An account that gets a new credential starts without grants: those of the old
        one are not visible."""
        digest = credential_digest(credential)
        if digest not in self._kept:
            self._kept[digest] = SharedGrants(self._rows, digest, self._clock, self._times)
        return self._kept[digest]

    async def finish(self) -> None:
        """Return when no renewal is under way: they go on when nobody waits for them any more. Before the transport closes."""
        await asyncio.gather(*(grants.finish() for grants in self._kept.values()))


class SharedGrants:
    """`Grants` over rows. In this process at most one renewal of an account is under way; other callers wait for it. Cancelling a
    caller does not cancel the renewal, because the server's answer must not be lost."""

    def __init__(self, rows: "SqlGrants", credential: str, clock: Clock, times: RenewalTimes) -> None:
        self._rows = rows
        self._credential = credential
        self._clock = clock
        self._times = times
        self._claimant = secrets.token_hex(8)
        self._known: dict[str, Grant] = {}
        self._renewing: dict[str, asyncio.Task[Grant]] = {}
        self._claim_seen: dict[str, tuple[int | None, str | None, float]] = {}
        self._unstored: dict[str, tuple[int, Grant]] = {}

    async def current(self, account_id: str) -> Grant | None:
        known = self._known.get(account_id)
        if known is None and (known := _grant_in(await self._read(account_id))) is not None:
            self._known[account_id] = known
        return known

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:
        under_way = self._renewing.get(account_id)
        if under_way is not None:
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
            grant = _grant_in(kept)
            if grant is not None and not _same(grant, used):
                return grant
            seen, seen_claim = (None, None) if kept is None else (kept.version, kept.claim)
            # The holder of a claim is surely past its time, or it is a leftover of ours, with nothing under way here.
            now, first = self._clock.monotonic(), self._claim_seen.get(account_id)
            if first is None or first[:2] != (seen, seen_claim):
                first = self._claim_seen[account_id] = (seen, seen_claim, now)
            overtaken = now - first[2] >= self._times.overtake_seconds
            if seen_claim in (None, self._claimant) or overtaken:
                version = await _available(
                    self._rows.claim(account_id, self._credential, self._claimant, seen=seen, seen_claim=seen_claim)
                )
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
        newer = _grant_in(await self._read(account_id))
        if newer is None:
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
