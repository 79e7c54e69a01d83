"""Hostaway as a table of answers: what comes of each, and what was asked for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import CancelOutcome, LookupOutcome, Outcome
from tests.support.pms.dialogue import Reply, Vendor, answered
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import QuickClock, booking

BASE_URL = "https://api.hostaway.com/v1"
TOKEN = "a.token.of-its.own"
CLIENT = "61148:s3cret"


@asynccontextmanager
async def connected(vendor: Vendor, credential: str = TOKEN, clock: QuickClock | None = None) -> AsyncIterator[Pms]:
    connection = AccountConnection("acme", "hostaway", BASE_URL, credential)
    async with open_directory(clock or QuickClock(), transport=replying(vendor)) as directory:
        yield directory.connect(connection)


async def create(vendor: Vendor, asked: Booking | None = None) -> Outcome:
    async with connected(vendor) as pms:
        return await pms.create(asked or booking())


async def found(vendor: Vendor, asked: Booking | None = None) -> LookupOutcome:
    async with connected(vendor) as pms:
        return await pms.find(asked or booking())


async def cancelled(vendor: Vendor, pms_id: str = "81") -> CancelOutcome:
    async with connected(vendor) as pms:
        return await pms.cancel(booking(), pms_id)


def success(result: object, **more: Any) -> httpx.Response:
    return answered(200, {"status": "success", "result": result} | more)


def fail(words: object, status: int = 200, *, within: str = "result") -> httpx.Response:
    return answered(status, {"status": "fail", within: words})


def a_reservation(**fields: Any) -> dict[str, Any]:
    return {"id": 81, "status": "new", "customerUserId": booking().reference} | fields


def listing(*reservations: object, count: object = None) -> httpx.Response:
    return success(list(reservations), limit=100, offset=None, count=len(reservations) if count is None else count)


def token(access_token: str = "token-1", seconds: int = 15_897_600) -> Reply:
    return answered(200, {"token_type": "Bearer", "expires_in": seconds, "access_token": access_token})
