"""Cloudbeds as a table of answers: what comes of each, and what was asked for it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import CancelOutcome, LookupOutcome, Outcome
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import OPTIONS, QuickClock, booking

BASE_URL = "https://api.cloudbeds.com/api/v1.3"
SOURCE = OPTIONS["cloudbeds"]


class Vendor:
    """Answers each method in turn, the last one for good, and keeps what it was asked."""

    def __init__(
        self, **answers: httpx.Response | httpx.HTTPError | Sequence[httpx.Response | httpx.HTTPError]
    ) -> None:
        self._answers = {
            name: list(given) if isinstance(given, Sequence) else [given] for name, given in answers.items()
        }
        self.requests: list[httpx.Request] = []
        self._takes_notes = any("Note" in name for name in answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if not self._takes_notes and request.url.path.endswith("Notes" if request.method == "GET" else "Note"):
            return answered({"success": True, "data": []})
        answers = self._answers[request.url.path.rpartition("/")[2]]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, httpx.HTTPError):
            raise answer
        return answer

    @property
    def asked(self) -> list[str]:
        """The methods that were asked, in order."""
        return [request.url.path.rpartition("/")[2] for request in self.requests]


@asynccontextmanager
async def connected(vendor: Vendor, **options: Any) -> AsyncIterator[Pms]:
    connection = AccountConnection("acme", "cloudbeds", BASE_URL, "cbat_7", options=SOURCE | options)
    async with open_directory(QuickClock(), transport=replying(vendor)) as directory:
        yield directory.connect(connection)


async def create(vendor: Vendor, asked: Booking | None = None, **options: Any) -> Outcome:
    async with connected(vendor, **options) as pms:
        return await pms.create(asked or booking())


async def find(vendor: Vendor, **options: Any) -> LookupOutcome:
    async with connected(vendor, **options) as pms:
        return await pms.find(booking())


async def cancel(vendor: Vendor, pms_id: str = "9001", **options: Any) -> CancelOutcome:
    async with connected(vendor, **options) as pms:
        return await pms.cancel(booking(), pms_id)


def answered(body: object, status: int = 200, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, content=content, headers=named)


def no(message: object, status: int = 200) -> httpx.Response:
    return answered({"success": False, "message": message}, status)


def made(**more: Any) -> httpx.Response:
    """The answer of postReservation."""
    return answered({"success": True, "reservationID": "9001", "status": "confirmed", "grandTotal": 330.5} | more)


def item(**more: Any) -> dict[str, Any]:
    """A reservation as getReservations lists it."""
    return {"reservationID": "9001", "status": "confirmed", "thirdPartyIdentifier": booking().reference} | more


def listed(*items: object, **more: Any) -> httpx.Response:
    return answered({"success": True, "data": items, "count": len(items), "total": len(items)} | more)


def shown(**more: Any) -> httpx.Response:
    """The answer of getReservation."""
    return answered({"success": True, "data": item() | {"total": 330.5, "balance": 230.5} | more})
