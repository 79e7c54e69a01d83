"""A PMS of the open contract as a table of answers: what comes of each."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import Transport
from forwarder.pms.port import AccountConnection, Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import LookupOutcome, Outcome, Rejected
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import QuickClock, booking

Answer = Callable[[httpx.Request], httpx.Response]


@asynccontextmanager
async def pms_that(
    answer: Answer | None = None,
    *,
    kind: str = "generic",
    base_url: str = "https://pms.test/api/",
    credential: str = "key-7",
    transport: Transport | None = None,
    options: Mapping[str, Any] | None = None,
) -> AsyncIterator[Pms]:
    """A PMS that answers so, or by whatever `transport` leads to."""
    way = transport or replying(answer or _nobody)
    async with open_directory(QuickClock(), transport=way) as directory:
        yield directory.connect(AccountConnection("acme", kind, base_url, credential, options=options or {}))


def _nobody(_request: httpx.Request) -> httpx.Response:
    raise AssertionError("nothing was to be asked")


async def created(status: int, body: object, asked: Booking | None = None) -> Outcome:
    """What a create comes to that is answered so, and with the reference, unless `body` has one of its own."""
    if isinstance(body, dict):
        body = {"reference": (asked or booking()).reference, **body}
    async with pms_that(lambda _: response(status, body)) as pms:
        return await pms.create(asked or booking())


async def found(body: object, status: int = 200) -> LookupOutcome:
    async with pms_that(lambda _: response(status, body)) as pms:
        return await pms.find(booking())


def response(status: int, body: object) -> httpx.Response:
    return httpx.Response(status, content=body if isinstance(body, bytes) else json.dumps(body).encode())


def refused(outcome: Outcome) -> str:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.problem.status == 409
    assert outcome.problem.request_id is not None
    return outcome.problem.code
