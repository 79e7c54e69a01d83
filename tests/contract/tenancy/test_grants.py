"""Grants that all processes share, on every backend: never lost, never asked for twice at once, sealed where they lie."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.pms.auth import RenewalTimes, SharedGrantKeeper, SharedGrants, credential_digest
from forwarder.pms.http.response import NotSent
from forwarder.pms.port import Grant, GrantsUnavailable
from forwarder.process.clock import Clock, SystemClock
from forwarder.store.engine import open_engine
from forwarder.tenancy.port import TenancyUnavailable
from forwarder.tenancy.sql.admin import TenancyAdmin
from forwarder.tenancy.sql.secrets import SqlGrants
from tests.contract.tenancy.authorization_server import RotatingServer
from tests.support.backends import slow_on
from tests.support.memory.clock import ManualClock
from tests.support.sealing import keyring_of
from tests.support.simulator.server import running_simulator
from tests.support.store.stored import NOBODY_LISTENS

SECRET = "the secret of the tests"
CREDENTIAL = "the credential"
TURNS = RenewalTimes(wait_seconds=10.0, ask_seconds=30.0, overtake_seconds=75.0, pause_seconds=0.05)
ELAPSING_TURNS = replace(TURNS, pause_seconds=2.0)
"""Where waiting takes no time, each look at the table does."""


@pytest.fixture
async def other_engine(migrated_url: str) -> AsyncIterator[AsyncEngine]:
    """As another process has one."""
    opened = open_engine(migrated_url)
    yield opened
    await opened.dispose()


def keeper(engine: AsyncEngine, clock: Clock | None = None, *, secret: str = SECRET) -> SharedGrantKeeper:
    rows = SqlGrants(engine, keyring_of(secret), keyring_of(secret))
    times = TURNS if clock is None else ELAPSING_TURNS
    return SharedGrantKeeper(rows, clock or SystemClock(), times)


def grants_of(engine: AsyncEngine, clock: Clock | None = None, credential: str = CREDENTIAL) -> SharedGrants:
    grants = keeper(engine, clock).under(credential)
    assert isinstance(grants, SharedGrants)
    return grants


async def kept(engine: AsyncEngine) -> list[tuple[str, int, str | None]]:
    """Account, version and claim of every row."""
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT account_id, version, claim FROM grants ORDER BY 1, 2"))
        return [tuple(row) for row in rows]


async def test_the_first_grant_is_asked_for_and_kept(engine: AsyncEngine, other_engine: AsyncEngine) -> None:
    server, ours, theirs = RotatingServer(), grants_of(engine), grants_of(other_engine)
    assert await ours.current("acc-1") is None
    first = await ours.renew("acc-1", None, server.ask)
    assert first == Grant("access-1", "refresh-1", first.expires_at)
    assert await ours.current("acc-1") == await theirs.current("acc-1") == first
    assert await theirs.current("acc-2") is None
    assert await kept(engine) == [("acc-1", 1, None)]


async def test_what_follows_is_kept_before_it_is_returned(engine: AsyncEngine, other_engine: AsyncEngine) -> None:
    server, ours = RotatingServer(strict=True), grants_of(engine)
    used = None
    for number in range(1, 5):
        used = await ours.renew("acc-1", used, server.ask)
        assert used.access_token == f"access-{number}"
        assert await grants_of(other_engine).current("acc-1") == used


async def test_it_is_sealed_where_it_lies(engine: AsyncEngine) -> None:
    server = RotatingServer()
    await grants_of(engine).renew("acc-1", None, server.ask)
    async with engine.connect() as connection:
        [row] = (await connection.execute(text("SELECT * FROM grants"))).all()
    assert not [secret for secret in ("access-1", "refresh-1", CREDENTIAL) if secret in str(row)]
    with pytest.raises(GrantsUnavailable):
        await keeper(engine, secret="another secret").under(CREDENTIAL).current("acc-1")


@pytest.mark.parametrize("strict", [False, True])
async def test_many_renewals_at_once_are_one_rotation(
    engine: AsyncEngine, other_engine: AsyncEngine, *, strict: bool
) -> None:
    server = RotatingServer(strict=strict)
    processes = [grants_of(one) for one in (engine, other_engine, engine, other_engine)]
    used = await processes[0].renew("acc-1", None, server.ask)
    server.use(used)
    renewed = await asyncio.gather(*(grants.renew("acc-1", used, server.ask) for grants in processes * 10))
    assert {grant.access_token for grant in renewed} == {"access-2"}
    assert (server.asked, server.at_once) == (2, 1)
    assert await kept(engine) == [("acc-1", 2, None)]


async def test_accounts_do_not_wait_for_each_other(engine: AsyncEngine) -> None:
    hanging, server, grants = RotatingServer(), RotatingServer(), grants_of(engine)
    hanging.open.clear()
    waiting = asyncio.create_task(grants.renew("acc-1", None, hanging.ask))
    await hanging.waiting.wait()
    assert (await grants.renew("acc-2", None, server.ask)).access_token == "access-1"
    hanging.open.set()
    await waiting


async def test_whoever_gives_up_does_not_lose_the_answer(engine: AsyncEngine, other_engine: AsyncEngine) -> None:
    server, book = RotatingServer(strict=True), keeper(engine)
    server.open.clear()
    asking = asyncio.create_task(book.under(CREDENTIAL).renew("acc-1", None, server.ask))
    await server.waiting.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    server.open.set()
    await book.finish()
    found = await grants_of(other_engine).current("acc-1")
    assert found is not None
    assert found.refresh_token == "refresh-1"


async def test_a_server_that_grants_nothing_changes_nothing(engine: AsyncEngine, other_engine: AsyncEngine) -> None:
    async def refuse(_latest: Grant | None) -> Grant:
        raise NotSent("pms_unauthorized", "invalid_grant")

    server = RotatingServer()
    used = await grants_of(engine).renew("acc-1", None, server.ask)
    with pytest.raises(NotSent):
        await grants_of(engine).renew("acc-1", used, refuse)
    assert await kept(engine) == [("acc-1", 1, None)]
    assert (await grants_of(other_engine).renew("acc-1", used, server.ask)).access_token == "access-2"


# --- processes that die or stop -------------------------------------------------------------------------------------------


async def dead_claim(engine: AsyncEngine, server: RotatingServer) -> Grant:
    """A grant, and the claim of a process that died when the server had answered and nothing was kept."""
    used = await grants_of(engine).renew("acc-1", None, server.ask)
    server.use(used)
    rows = SqlGrants(engine, keyring_of(SECRET), keyring_of(SECRET))
    digest = credential_digest(CREDENTIAL)
    assert await rows.claim("acc-1", digest, "a dead process", seen=1, seen_claim=None) == 1
    await server.ask(used)
    return used


class ElapsingClock(ManualClock):
    """Whoever sleeps finds the time gone by at once."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


async def test_a_dead_processs_claim_is_overtaken_in_time_and_not_before(engine: AsyncEngine) -> None:
    server, clock = RotatingServer(), ElapsingClock()
    used = await dead_claim(engine, server)
    grants = grants_of(engine, clock)
    while clock.monotonic() < TURNS.overtake_seconds - TURNS.wait_seconds:
        with pytest.raises(GrantsUnavailable, match="another process"):
            await grants.renew("acc-1", used, server.ask)
    assert server.asked == 2
    # The old refresh token is good still: what the dead process was granted was never used.
    assert (await grants.renew("acc-1", used, server.ask)).access_token == "access-3"
    assert clock.monotonic() >= TURNS.overtake_seconds
    assert await kept(engine) == [("acc-1", 2, None)]


async def test_a_claimant_that_was_overtaken_takes_what_the_other_kept(
    engine: AsyncEngine, other_engine: AsyncEngine
) -> None:
    server, clock, stopped = RotatingServer(), ElapsingClock(), grants_of(engine)
    used = await stopped.renew("acc-1", None, server.ask)
    server.open.clear()
    server.waiting.clear()
    asking = asyncio.create_task(stopped.renew("acc-1", used, server.ask))
    await server.waiting.wait()
    impatient = grants_of(other_engine, clock)
    newer = None
    while newer is None:
        with suppress(GrantsUnavailable):
            newer = await impatient.renew("acc-1", used, _overtaking)
    server.open.set()
    assert await asking == newer
    assert await grants_of(engine).current("acc-1") == newer
    assert await kept(engine) == [("acc-1", 2, None)]


async def _overtaking(_latest: Grant | None) -> Grant:
    return Grant("access-of-another", "refresh-of-another")


async def test_a_refused_claimant_that_was_overtaken_takes_what_the_other_kept(engine: AsyncEngine) -> None:
    server, rows = RotatingServer(), SqlGrants(engine, keyring_of(SECRET), keyring_of(SECRET))
    grants = grants_of(engine)
    used = await grants.renew("acc-1", None, server.ask)
    newer = await _overtaking(used)

    async def too_late(_latest: Grant | None) -> Grant:
        assert await rows.store("acc-1", credential_digest(CREDENTIAL), 1, newer.as_text())
        raise NotSent("pms_unauthorized", "invalid_grant")

    assert await grants.renew("acc-1", used, too_late) == newer


@slow_on("embedded")
async def test_processes_that_are_killed_lose_nothing(migrated_url: str, engine: AsyncEngine) -> None:
    """Two renew and use what they get, again and again; one after the other is killed in whatever it is doing, and replaced."""
    async with running_simulator() as simulator, AsyncExitStack() as ending:
        address = f"{simulator.url}/acme/booking-sync"
        children = [await renewing(ending, migrated_url, address) for _ in range(2)]
        for turn in range(3):
            killed, survivor = children[turn % 2], children[(turn + 1) % 2]
            await printed(killed, 1 + turn)
            killed.kill()
            await printed(survivor, 3)
            children[turn % 2] = await renewing(ending, migrated_url, address)
    [row] = await kept(engine)
    assert row[1] > 3  # versions: the chain of refresh tokens never broke


async def renewing(ending: AsyncExitStack, database_url: str, address: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "tests.contract.tenancy.renewing_child", database_url, address, SECRET)
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    ending.push_async_callback(child.wait)
    ending.callback(lambda: child.kill() if child.returncode is None else None)
    return child


async def printed(child: asyncio.subprocess.Process, lines: int) -> None:
    """Return when `child` has printed so many access tokens more."""
    assert child.stdout is not None
    async with asyncio.timeout(60):
        for _ in range(lines):
            assert (await child.stdout.readline()).startswith(b"sim-access-"), "a child ended by itself"


class FailsToStoreOnce(SqlGrants):
    """Rows whose database goes away just when something is to be stored."""

    away = True

    async def store(self, account_id: str, credential: str, version: int, content: str) -> bool:
        if self.away:
            self.away = False
            raise TenancyUnavailable("gone")
        return await super().store(account_id, credential, version, content)


async def test_what_could_not_be_kept_is_kept_later_and_nobody_asked_again(
    engine: AsyncEngine, other_engine: AsyncEngine
) -> None:
    server = RotatingServer(strict=True)
    rows = FailsToStoreOnce(engine, keyring_of(SECRET), keyring_of(SECRET))
    grants = SharedGrantKeeper(rows, SystemClock(), TURNS).under(CREDENTIAL)
    with pytest.raises(GrantsUnavailable):
        await grants.renew("acc-1", None, server.ask)
    assert await grants.current("acc-1") is None
    assert (await grants.renew("acc-1", None, server.ask)).access_token == "access-1"
    assert server.asked == 1
    assert (await grants_of(other_engine).renew("acc-1", None, server.ask)).access_token == "access-1"


# --- credentials ----------------------------------------------------------------------------------------------------------


async def test_another_credential_begins_anew_and_the_same_one_goes_on(engine: AsyncEngine) -> None:
    server = RotatingServer()
    first = await grants_of(engine).renew("acc-1", None, server.ask)
    assert await grants_of(engine, credential="a new one").current("acc-1") is None
    await grants_of(engine, credential="a new one").renew("acc-1", None, RotatingServer().ask)
    assert await grants_of(engine).current("acc-1") == first
    await TenancyAdmin(engine).forget_grants("acc-1", but=credential_digest("a new one"))
    assert await grants_of(engine).current("acc-1") is None
    assert await grants_of(engine, credential="a new one").current("acc-1") is not None


async def test_a_database_that_is_away_is_said_so() -> None:
    away = open_engine(NOBODY_LISTENS)
    try:
        with pytest.raises(GrantsUnavailable):
            await grants_of(away).current("acc-1")
        with pytest.raises(GrantsUnavailable):
            await grants_of(away).renew("acc-1", None, RotatingServer().ask)
    finally:
        await away.dispose()
