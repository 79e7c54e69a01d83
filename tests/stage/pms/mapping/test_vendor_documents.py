"""The requests of kinds that are mappings, held against the OpenAPI documents of their vendors: `KIND/openapi.json` in the folder
of the vendors' contracts, where this machine has it."""

from copy import deepcopy
from typing import Any

import httpx
import pytest
from pydantic_core import from_json, to_json

from forwarder.reservation.outcome import Cancelled, Confirmed
from forwarder.simulator.world import World
from forwarder_pms_kit.simulators import SITES, simulator_app
from tests.support.memory.clock import ManualClock
from tests.support.pms.httpx_transport import HttpxTransport
from tests.support.pms.kinds.open_pms import pms_that
from tests.support.pms.vendor_contracts import contract_document
from tests.support.pms.vendor_openapi import OpenApi
from tests.support.simulator.client import NOW
from tests.support.simulator.server import booking

KINDS = ("guesty", "hospitable", "hostfully", "hostify", "lodgify", "smoobu")
NOT_IN_THE_DOCUMENT = {
    # Of February 2025. The code is in the vendor's newer pages, and pets in what it answers.
    "guesty": [("confirmationCode",), ("numberOfGuests", "numberOfPets")],
}
NUMBERED: dict[str, Any] = {
    "propertyId": 77,
    "roomId": 77,
    "numberOfGuests": 3,
    "numberOfAdults": 2,
    "numberOfChildren": 1,
}


class Recorded(httpx.AsyncBaseTransport):
    """What is asked of `pms`, and answered by it."""

    def __init__(self, pms: httpx.AsyncBaseTransport) -> None:
        self._pms = pms
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        return await self._pms.handle_async_request(request)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_sent_is_what_the_vendor_documents(kind: str) -> None:
    document, site = contract_document(kind, "openapi.json"), SITES[kind]
    pms_of_the_kind = Recorded(httpx.ASGITransport(simulator_app(World(ManualClock(NOW)))))
    base = f"https://simulator.test/acme/{site.path}"
    transport = HttpxTransport(pms_of_the_kind)
    credential = site.credential if ":" in site.credential else "a-client:its-secret"
    async with pms_that(
        kind=kind, base_url=base, transport=transport, credential=credential, options=site.options
    ) as pms:
        made = await pms.create(booking(**NUMBERED))
        assert isinstance(made, Confirmed), made
        assert isinstance(await pms.find(booking(**NUMBERED)), Confirmed)
        assert await pms.cancel(booking(**NUMBERED), made.pms_reservation_id) == Cancelled()
    vendor = OpenApi(_corrected(kind, document), f"/acme/{site.path}")
    asked = [request for request in pms_of_the_kind.requests if "/oauth" not in request.url.path]
    assert len(asked) >= 3
    for request in asked:
        vendor.check_request(_without(request, NOT_IN_THE_DOCUMENT.get(kind, [])))


def _corrected(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    """The document without what its vendor's own examples contradict."""
    if kind != "guesty":
        return document
    corrected = deepcopy(document)
    (filters,) = (one for one in corrected["paths"]["/reservations"]["get"]["parameters"] if one["name"] == "filters")
    filters["schema"]["items"]["properties"]["value"] = {}  # whole numbers alone, in the document
    return corrected


def _without(request: httpx.Request, paths: list[tuple[str, ...]]) -> httpx.Request:
    """The request without what the vendor's document does not name, though other pages of the vendor's do."""
    if not request.content:
        return request
    body: Any = from_json(request.content)
    for *parents, last in paths:
        part = body
        for parent in parents:
            part = part.get(parent, {})
        part.pop(last, None)
    headers = {"content-type": request.headers["content-type"]}
    return httpx.Request(request.method, request.url, headers=headers, content=to_json(body))
