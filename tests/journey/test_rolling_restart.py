"""A rolling restart refuses nobody: each of two ingress processes is stopped and replaced while reservations come in steadily."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Mapping

import httpx
import pytest

from tests.support.backends import only
from tests.support.deployment.deployment import Deployment, Site, booking, deploy

pytestmark = [only("distributed"), pytest.mark.slow]

LAME_DUCK_SECONDS = 5
NEWS_SECONDS = 1.0
"""A balancer that has not asked for so long asks first: however busy this machine is, it knows within the lame-duck time."""
CALLERS = 4
PAUSE_SECONDS = 0.02
ROLES = ("ingress", "second")


class Balancer:
    """Sends to those who say that they are ready, in turn, by connections that it keeps."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.clients = {
            role: httpx.AsyncClient(base_url=url, timeout=30.0, limits=httpx.Limits(max_connections=CALLERS + 1))
            for role, url in urls.items()
        }
        self.ready: dict[str, bool] = dict.fromkeys(urls, False)
        self._asked: dict[str, float] = dict.fromkeys(urls, 0.0)
        self.sent: Counter[str] = Counter()

    async def watch(self) -> None:
        while True:
            await asyncio.gather(*map(self._ask, self.clients))
            await asyncio.sleep(NEWS_SECONDS / 10)

    async def post(self, path: str, **request: object) -> httpx.Response:
        while not (ready := [role for role in self.clients if await self._is_ready(role)]):
            await asyncio.sleep(PAUSE_SECONDS)
        role = min(ready, key=lambda one: self.sent[one])
        self.sent[role] += 1
        return await self.clients[role].post(path, **request)  # type: ignore[arg-type]

    async def close(self) -> None:
        for client in self.clients.values():
            await client.aclose()

    async def _is_ready(self, role: str) -> bool:
        if time.monotonic() - self._asked[role] > NEWS_SECONDS:
            await self._ask(role)
        return self.ready[role]

    async def _ask(self, role: str) -> None:
        asked = time.monotonic()
        try:
            self.ready[role] = (await self.clients[role].get("/readyz")).status_code == 200
        except httpx.TransportError:
            self.ready[role] = False
        self._asked[role] = asked


class Callers:
    """They book, one reservation after the other each, and note whatever is no 202."""

    def __init__(self, deployment: Deployment, balancer: Balancer) -> None:
        self._headers = deployment.headers("generic")
        self._balancer = balancer
        self._numbers = iter(range(10**9))
        self.accepted = 0
        self.refused: list[str] = []
        self.stop = asyncio.Event()

    async def book(self) -> None:
        while not self.stop.is_set():
            try:
                answer = await self._balancer.post(
                    "/api/v1/vrs/reservations/booking-engine",
                    json=booking(next(self._numbers)),
                    headers=self._headers,
                )
            except httpx.TransportError as error:
                self.refused.append(repr(error))
                continue
            if answer.status_code == 202:
                self.accepted += 1
            else:
                self.refused.append(answer.text)
            await asyncio.sleep(PAUSE_SECONDS)

    async def more(self, count: int = 50) -> None:
        """Once so many more were accepted."""
        until = self.accepted + count
        async with asyncio.timeout(120):
            while self.accepted < until:
                await asyncio.sleep(PAUSE_SECONDS)


async def test_each_ingress_is_replaced_and_nobody_is_refused(site: Site) -> None:
    lame_duck = {"ingress": {"FORWARDER_LAME_DUCK_SECONDS": str(LAME_DUCK_SECONDS)}}
    async with deploy(site, own=lame_duck) as deployment:
        deployment.add("ingress", role="second")
        await asyncio.gather(deployment.start(), deployment.add_account("generic"))
        balancer = Balancer({role: deployment.url(role) for role in ROLES})
        callers = Callers(deployment, balancer)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(balancer.watch())
            posting = [tasks.create_task(callers.book()) for _ in range(CALLERS)]
            await callers.more()
            codes = [await replaced(deployment, callers, balancer, role) for role in ROLES]
            callers.stop.set()
            await asyncio.wait(posting)
            watching.cancel()
        await balancer.close()

        assert callers.refused == []
        assert codes == [0, 0]
        records = await deployment.all_settled("generic", callers.accepted)
        assert Counter(record["status"] for record in records) == {"CONFIRMED": callers.accepted}


async def replaced(deployment: Deployment, callers: Callers, balancer: Balancer, role: str) -> int:
    """Stop it as an orchestrator does, and start another in its place, under load all the time; the exit code."""
    before = callers.accepted
    code = await asyncio.to_thread(deployment.processes[role].end, signal.SIGTERM)
    assert callers.accepted > before
    await callers.more()
    await deployment.start()
    taken = balancer.sent[role]
    async with asyncio.timeout(120):
        while balancer.sent[role] < taken + 10:
            await asyncio.sleep(PAUSE_SECONDS)
    return code
