"""BookingSync as a table of answers: what comes of each, and what was asked for it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import CancelOutcome, LookupOutcome, Outcome
from tests.support.memory.clock import ManualClock
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import booking

NOW = datetime(2027, 1, 1, tzinfo=UTC)
BASE_URL = "https://www.bookingsync.com/api/v3"
CONNECTION = AccountConnection("acme", "booking-sync", BASE_URL, "token-7")
CLIENT = httpx.Response(201, json={"clients": [{"id": 77}]})


class Vendor:
    """Answers in turn, and keeps what it was asked."""

    def __init__(self, *answers: httpx.Response | httpx.HTTPError) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, httpx.HTTPError):
            raise answer
        return answer


@asynccontextmanager
async def connected(vendor: Vendor, connection: AccountConnection = CONNECTION) -> AsyncIterator[Pms]:
    async with open_directory(ManualClock(NOW), transport=replying(vendor)) as directory:
        yield directory.connect(connection)


def with_options(**options: Any) -> AccountConnection:
    """The account with these options, named as an operator names them."""
    return replace(CONNECTION, options=options)


async def create(
    asked: Booking, *answers: httpx.Response | httpx.HTTPError, connection: AccountConnection = CONNECTION
) -> tuple[Outcome, list[httpx.Request]]:
    vendor = Vendor(*answers)
    async with connected(vendor, connection) as pms:
        return await pms.create(asked), vendor.requests


async def booked(
    status: int, body: object, headers: dict[str, str] | None = None, asked: Booking | None = None
) -> Outcome:
    """What a create comes to whose booking is answered so, once the client was created."""
    outcome, _ = await create(asked or booking(), CLIENT, answered(status, body, headers or {}))
    return outcome


async def find(
    *answers: httpx.Response, connection: AccountConnection = CONNECTION
) -> tuple[LookupOutcome, list[httpx.Request]]:
    vendor = Vendor(*answers)
    async with connected(vendor, connection) as pms:
        return await pms.find(booking()), vendor.requests


async def cancel(
    *answers: httpx.Response | httpx.HTTPError, pms_id: str = "840043", asked: Booking | None = None
) -> tuple[CancelOutcome, list[httpx.Request]]:
    vendor = Vendor(*answers)
    async with connected(vendor) as pms:
        return await pms.cancel(asked or booking(), pms_id), vendor.requests


def asked_for(requests: Sequence[httpx.Request]) -> list[tuple[str, str]]:
    """Method and address of each request, without the query; below the base URL as a path."""
    return [(request.method, str(request.url.copy_with(query=None)).removeprefix(BASE_URL)) for request in requests]


def resource_in(request: httpx.Request, resources: str) -> dict[str, Any]:
    """The one resource that was sent."""
    [resource] = json.loads(request.content)[resources]
    assert isinstance(resource, dict)
    return resource


def answered(status: int, body: object, headers: dict[str, str] | None = None) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.Response(status, content=content, headers=headers)


def a_booking(**fields: Any) -> dict[str, Any]:
    return {"id": 5, "status": "Booked", "external_reference": booking().reference} | fields


def listing(bookings: Sequence[dict[str, Any]], *, pages: int | None = 1) -> httpx.Response:
    headers = None if pages is None else {"X-Total-Pages": str(pages)}
    return answered(200, {"bookings": bookings}, headers)
