"""Where requirements are tried: a whole forwarder over HTTP, and PMSs that tell what they were asked for."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import date, timedelta
from typing import Any, Final

import httpx

from forwarder.assembly.backend import open_backend
from forwarder.operate.tenants.accounts import Accounts
from forwarder.tenancy.port import Account
from tests.journey.specification.overheard_simulator import OverheardSimulator, overheard_simulator
from tests.journey.specification.requirement import ABSENT, LISTED, Answer, Call, general
from tests.support.deployment.deployment import Deployment, deploy
from tests.support.deployment.site import Site, settings_of

_FIRST_NIGHT: Final = date(2031, 6, 1)
_WAIT_SECONDS: Final = "4"
"""How long the general operation waits for a PMS: far longer than one takes that is there."""
_OPEN_CONTRACT: Final = {"generic", "website-builder"}
_ACCOUNTS: Final = {
    "generic": ("generic", "generic", {}),
    "other": ("generic", "generic", {}),
    "away": ("generic", "generic", {}),
    "listed": ("generic", "generic", {}),
    "websites": ("website-builder", "website-builder", {}),
    "sync": ("booking-sync", "booking-sync/api/v3", {}),
    "quoting": ("booking-sync", "booking-sync/api/v3", {"liveQuote": True}),
}
"""Account → its kind, the path of its PMS, its options."""


class House:
    """Sends calls as their caller would, with the three headers and nothing else of ours."""

    def __init__(self, deployment: Deployment, pms: OverheardSimulator) -> None:
        self._deployment = deployment
        self._pms = pms
        self._numbers = itertools.count()

    async def answer(self, call: Call) -> Answer:
        """What comes back; of a creation that was accepted, once the PMS was asked for it."""
        if call.follow:
            return await self._follow(call)
        body = self._body(call)
        response = await self._send(call, call.content or json.dumps(body))
        answer = Answer(call, body, response.status_code, response.json())
        pushes = call.method == "POST" and response.is_success and _ACCOUNTS[call.account][0] in _OPEN_CONTRACT
        if not pushes or call.account == "away":
            return answer
        asked = await self._pms.asked(body["arrivalDate"])
        return Answer(call, body, answer.status, answer.body, asked.fields, asked.path)

    def _body(self, call: Call) -> dict[str, Any]:
        number = next(self._numbers)
        arrival = _FIRST_NIGHT + timedelta(days=2 * number)
        nights = {"arrivalDate": arrival.isoformat(), "departureDate": (arrival + timedelta(days=2)).isoformat()}
        return call.body(number, nights)

    async def _send(self, call: Call, content: str) -> httpx.Response:
        role = "ingress" if call.method == "POST" else "query"
        return await self._deployment.client.request(
            call.method,
            self._deployment.url(role) + call.path,
            content=content if call.method == "POST" else None,
            headers=_present(self._deployment.headers(call.account, **call.headers)),
        )

    async def _follow(self, call: Call) -> Answer:
        pages: list[Any] = []
        next_path = call.path
        while True:
            page = await self.answer(call.but(path=next_path, follow=False))
            assert page.status == httpx.codes.OK, page.body
            pages.append(page.body)
            cursor = page.body["meta"]["cursors"].get("next")
            if not cursor:
                return Answer(call, {}, page.status, pages)
            next_path = f"{call.path}{'&' if '?' in call.path else '?'}cursor={cursor}"

    async def furnish(self) -> None:
        """What the calls take to be there."""
        async with open_backend(settings_of(self._deployment.site)) as backend:
            accounts = Accounts(backend.tenancy, backend.sealer)
            for name, (kind, path, options) in _ACCOUNTS.items():
                base_url = f"{self._pms.url}/{name}/{path}"
                await accounts.add(Account(name, "demo", kind, base_url, "", options=options), "secret")
        self._pms.go_away("away")
        made = [self.answer(general(account="listed")) for _ in range(LISTED)]
        refused = self.answer(general({"roomId": "unknown"}, account="listed"))
        answers = await asyncio.gather(*made, refused)
        statuses = [answer.status for answer in answers]
        assert statuses == [201] * LISTED + [409], answers[-1].body


def _present(headers: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if value is not ABSENT}


@asynccontextmanager
async def open_house(site: Site) -> AsyncIterator[House]:
    """A forwarder with the accounts of the calls."""
    settings = {**site.settings, "FORWARDER_WAIT_SECONDS": _WAIT_SECONDS}
    async with (
        overheard_simulator() as pms,
        deploy(Site(site.backend, site.directory, settings, site.reaper)) as deployment,
    ):
        house = House(deployment, pms)
        await house.furnish()
        yield house
