"""A deployment under fire: the forwarder's processes, the engines below them, and those who can see what became of everything."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import asyncpg
import httpx
from asyncpg.connect_utils import SessionAttribute

from forwarder.assembly.backend import open_backend
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import with_credential
from tests.fault.campaign.bookings import Bookings
from tests.fault.campaign.ledger import Ledger, open_ledger
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, deploy
from tests.support.deployment.site import Site, settings_of

_PMS_MILLISECONDS = 15
"""How long a simulated PMS thinks: there is always something under way that a fault can hit."""


RATES: Mapping[str, float | None] = dict.fromkeys(("generic", "website-builder", "booking-sync"), 2_000.0)
"""Requests a second to each PMS: more than anybody sends, and far more than some vendors allow."""
_PATHS = {"generic": "generic", "website-builder": "website-builder", "booking-sync": "booking-sync/api/v3"}
"""Where the simulator has each kind of PMS, below the account's name."""


class Engine(Protocol):
    """Kafka or PostgreSQL as processes. Both calls block."""

    def start(self) -> None:
        """Start what does not run, let go on what is frozen; return when all of it serves."""

    def kill(self) -> None:
        """As when the power fails."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the cases share; each has accounts of its own in it."""

    deployment: Deployment
    engines: Sequence[Engine]
    ledger: Ledger
    bookings: Bookings

    async def mend(self) -> None:
        """Bring back whatever the case before left dead or frozen, and send away the processes that it added."""
        deployment = self.deployment
        await self.mend_engines()
        for added in [role for role in deployment.processes if role not in _OWN_ROLES]:
            await deployment.drop(added)
        for process in deployment.processes.values():
            if process.running:
                process.resume()
        await deployment.start()

    async def mend_engines(self) -> None:
        """Start what does not run of Kafka and PostgreSQL."""
        await asyncio.gather(*(asyncio.to_thread(engine.start) for engine in self.engines))

    async def rows(self, query: str) -> Mapping[str, int]:
        """What PostgreSQL answers to a query for names with numbers."""
        url = self.deployment.site.settings["FORWARDER_DATABASE_URL"]
        connection = await asyncpg.connect(
            url.replace("+asyncpg", ""), target_session_attrs=SessionAttribute.read_write
        )
        try:
            return {str(name): int(number) for name, number in await connection.fetch(query)}
        finally:
            await connection.close()

    async def holders(self) -> set[str]:
        """The ids of workers that have leases, those that were killed and not yet found out among them."""
        return set(await self.rows("select id, 1 from workers"))

    async def leases(self, count: int) -> set[str]:
        """The holders, once there are so many and no others: those that an earlier case killed are forgotten by then."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(holders := await self.holders()) != count:
                await asyncio.sleep(0.1)
        return holders


_OWN_ROLES = frozenset({"simulate", "ingress", "worker", "query", "up"})


@asynccontextmanager
async def open_service(site: Site, *engines: Engine) -> AsyncIterator[Service]:
    """A deployment on the engines that the site's settings name; all of them run already."""
    journal = site.directory / "bookings.jsonl"
    calm = replace(site, settings={**site.settings, "FORWARDER_LOG_LEVEL": "info"})  # a line a request is work too
    async with (
        deploy(calm, "--state", str(journal), "--delay", str(_PMS_MILLISECONDS)) as deployment,
        open_ledger(settings_of(site)) as ledger,
    ):
        yield Service(deployment, engines, ledger, Bookings(journal))


async def put_accounts(deployment: Deployment, kinds: Mapping[str, str], rates: Mapping[str, float | None]) -> None:
    """Accounts of workspace `demo` by their ids, each of a kind, with PMSs that are simulated under their own
    names. `rates`: requests a second, by kind; None for what the kind allows."""
    async with open_backend(settings_of(deployment.site)) as backend:
        sealer = await backend.sealer()
        for account_id, kind in kinds.items():
            base_url = f"{deployment.url('simulate')}/{account_id}/{_PATHS[kind]}"
            account = Account(account_id, "demo", kind, base_url, "", rate_per_second=rates[kind])
            await backend.tenancy.put_account(with_credential(account, "secret", sealer))


async def measured(deployment: Deployment, role: str, metric: str) -> float:
    """One metric of a role's process, by its name with its labels as they are shown; 0.0 where it is not there yet."""
    shown = await deployment.client.get(f"{deployment.url(role)}/metrics")
    assert shown.status_code == httpx.codes.OK, shown.text
    values = [line.rpartition(" ") for line in shown.text.splitlines()]
    return next((float(value) for name, _, value in values if name == metric), 0.0)
