"""Beds24 as a table of answers: what comes of each, and what was asked for it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from forwarder.pms.directory import open_directory
from forwarder.pms.port import AccountConnection, Pms
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import CancelOutcome, LookupOutcome, Outcome
from tests.support.memory.clock import ManualClock
from tests.support.pms.dialogue import Reply, Vendor, answered
from tests.support.pms.httpx_transport import replying
from tests.support.pms.vendor_contracts import contract_document
from tests.support.pms.vendor_openapi import OpenApi
from tests.support.simulator.server import booking

NOW = datetime(2027, 1, 1, tzinfo=UTC)
BASE_URL = "https://api.beds24.com/v2"
PLAIN: Mapping[str, Any] = {"credentialType": "token"}
STATUSES = ["confirmed", "request", "new", "cancelled", "black", "inquiry"]


@asynccontextmanager
async def connected(vendor: Vendor, clock: Clock | None = None, **options: Any) -> AsyncIterator[Pms]:
    connection = AccountConnection("acme", "beds24", BASE_URL, "refresh-7", options=options)
    async with open_directory(clock or ManualClock(NOW), transport=replying(vendor)) as directory:
        yield directory.connect(connection)


async def create(vendor: Vendor, asked: Booking | None = None) -> Outcome:
    async with connected(vendor, **PLAIN) as pms:
        return await pms.create(asked or booking())


async def create_many(vendor: Vendor, asked: Sequence[Booking]) -> Sequence[Outcome]:
    async with connected(vendor, **PLAIN) as pms:
        return await pms.create_many(asked)


async def found(vendor: Vendor) -> LookupOutcome:
    async with connected(vendor, **PLAIN) as pms:
        return await pms.find(booking())


async def cancelled(vendor: Vendor, pms_id: str = "81") -> CancelOutcome:
    async with connected(vendor, **PLAIN) as pms:
        return await pms.cancel(booking(), pms_id)


def posted(*items: object, status: int = 201) -> httpx.Response:
    """The answer to a POST of as many items."""
    return answered(status, list(items))


def made(booking_id: object = 81, **more: Any) -> dict[str, Any]:
    """What is said of an item that made a booking."""
    return {"success": True, "new": {"id": booking_id} | more, "info": [{"action": "new booking", "message": "added"}]}


def no(field: str, message: str) -> dict[str, Any]:
    """What is said of an item that failed."""
    return {"success": False, "errors": [{"action": "new booking", "field": field, "message": message}]}


def a_booking(**fields: Any) -> dict[str, Any]:
    return {"id": 81, "status": "confirmed", "custom10": booking().reference} | fields


def listing(*bookings: object, more: bool = False) -> httpx.Response:
    pages = {"nextPageExists": more}
    body = {"success": True, "type": "booking", "count": len(bookings), "pages": pages, "data": list(bookings)}
    return answered(200, body)


def token(access_token: str = "access-1", seconds: int = 86_400) -> Reply:
    return answered(200, {"token": access_token, "expiresIn": seconds})


def open_api() -> OpenApi:
    """The vendor's document; skips the test where it is not there."""
    return OpenApi(_read(contract_document("beds24", "apiV2.yaml")), "/v2")


def _read(document: dict[str, Any]) -> dict[str, Any]:
    """The document as it is meant: the parts of `allOf` are one object, a parameter that is a list comes once for each value."""

    def resolved(schema: Any) -> Any:
        if isinstance(schema, list):
            return [resolved(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            target: Any = document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            return resolved(target)
        if schema.get("in") == "query" and schema["schema"].get("type") == "array":
            return schema | {"schema": schema["schema"]["items"]}
        whole = {name: resolved(part) for name, part in schema.items()}
        return whole if "allOf" not in whole else _one(whole["allOf"])

    result: dict[str, Any] = resolved({"paths": document["paths"]})
    return result


def _one(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What has an id needs nothing else: the document requires a whole booking even of a change, its examples of changes do not."""
    required = sorted({name for part in parts for name in part.get("required", ())})
    properties = {name: schema for part in parts for name, schema in part.get("properties", {}).items()}
    needed = {"anyOf": [{"required": ["id"]}, {"required": required}]} if required else {}
    return {"type": "object", "properties": properties} | needed
