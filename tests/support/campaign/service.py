"""A deployment under fire: the forwarder's processes, the engines below them, and those who can see what became of everything."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import asyncpg

from tests.support.campaign.bookings import Bookings
from tests.support.campaign.ledger import Ledger, open_ledger
from tests.support.deployment.deployment import Deployment, deploy
from tests.support.deployment.site import Site, settings_of

_PMS_MILLISECONDS = 15
"""How long a simulated PMS thinks: there is always something under way that a fault can hit."""


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
        await asyncio.gather(*(asyncio.to_thread(engine.start) for engine in self.engines))
        for added in [role for role in deployment.processes if role not in _OWN_ROLES]:
            await deployment.drop(added)
        for process in deployment.processes.values():
            if process.running:
                process.resume()
        await deployment.start()

    async def rows(self, query: str) -> Mapping[str, int]:
        """What PostgreSQL answers to a query for names with numbers."""
        url = self.deployment.site.settings["FORWARDER_DATABASE_URL"]
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            return {str(name): int(number) for name, number in await connection.fetch(query)}
        finally:
            await connection.close()


_OWN_ROLES = frozenset({"simulate", "ingress", "worker", "query", "up"})


@asynccontextmanager
async def open_service(site: Site, *engines: Engine) -> AsyncIterator[Service]:
    """A deployment on the engines that the site's settings name; all of them run already."""
    journal = site.directory / "bookings.jsonl"
    async with (
        deploy(site, "--state", str(journal), "--delay", str(_PMS_MILLISECONDS)) as deployment,
        open_ledger(settings_of(site)) as ledger,
    ):
        yield Service(deployment, engines, ledger, Bookings(journal))
