"""BookingSync on the wire: our requests and its answers, beside the vendor's recorded traffic and examples.

The recordings are no part of the project: they are read from FORWARDER_CONTRACTS_DIR, or from ../shared/contracts.
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from forwarder.reservation.outcome import Absent, Confirmed, Deferred
from tests.support.booking_sync import (
    CLIENT,
    a_booking,
    answered,
    booked,
    create,
    find,
)
from tests.support.simulator import booking

CONTRACTS = Path(
    os.environ.get("FORWARDER_CONTRACTS_DIR", Path(__file__).resolve().parents[2].parent / "shared" / "contracts")
)

with_recordings = pytest.mark.skipif(
    not (CONTRACTS / "bookingsync").is_dir(),
    reason=f"no recorded traffic at {CONTRACTS}/bookingsync; FORWARDER_CONTRACTS_DIR says where it is",
)


def recorded(cassette: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The request and the response of a recording's one exchange."""
    document = yaml.safe_load((CONTRACTS / "bookingsync" / "cassettes" / f"{cassette}.yml").read_text())
    [exchange] = document["http_interactions"]
    return exchange["request"], exchange["response"]


def replayed(response: dict[str, Any]) -> httpx.Response:
    """A recorded response; without its length and framing, which were those of the wire."""
    framing = {"transfer-encoding", "content-encoding", "content-length", "connection"}
    headers = [(name, value) for name, values in response["headers"].items() for value in values]
    kept = [(name, value) for name, value in headers if name.lower() not in framing]
    return httpx.Response(response["status"]["code"], headers=kept, content=response["body"]["string"].encode())


def assert_same_address_and_headers(ours: httpx.Request, theirs: dict[str, Any]) -> None:
    recorded_url = urlsplit(theirs["uri"])
    assert ours.method == theirs["method"].upper()
    assert ours.url.path == recorded_url.path
    for name in ("Accept", "Content-Type"):
        assert [ours.headers[name]] == theirs["headers"][name]
    assert theirs["headers"]["Authorization"] == ["Bearer <<ACCESS_TOKEN>>"]
    assert ours.headers["Authorization"] == "Bearer token-7"


@with_recordings
async def test_a_client_is_created_as_recorded() -> None:
    request, response = recorded("Clients-create_client-creates_a_new_client")
    [theirs] = json.loads(request["body"]["string"])["clients"]
    guest = {
        "name": theirs["fullname"],
        "email": theirs["emails"][0]["email"],
        "address": {"city": theirs["city"], "country": theirs["country_code"]},
    }
    made = answered(201, {"bookings": [a_booking()]})
    outcome, (ours, next_request) = await create(booking(guest=guest), replayed(response), made)
    assert_same_address_and_headers(ours, request)
    [client] = json.loads(ours.content)["clients"]
    assert client["fullname"] == theirs["fullname"]
    assert client["emails"] == theirs["emails"]
    # Since the recording, the vendor's documentation has moved the place into a list of addresses.
    assert client["addresses"] == [{"label": "default", "city": theirs["city"], "country_code": theirs["country_code"]}]
    [recorded_client] = json.loads(response["body"]["string"])["clients"]
    assert json.loads(next_request.content)["bookings"][0]["client_id"] == recorded_client["id"] == 260693
    assert isinstance(outcome, Confirmed)


@with_recordings
async def test_a_booking_is_created_as_recorded() -> None:
    request, response = recorded("Bookings-create_booking-creates_a_booking")
    [theirs] = json.loads(request["body"]["string"])["bookings"]
    rental = int(urlsplit(request["uri"]).path.split("/")[-2])
    asked = booking(propertyId=rental, arrivalDate=theirs["start_at"], departureDate=theirs["end_at"])
    outcome, (_, ours) = await create(asked, CLIENT, replayed(response))
    assert_same_address_and_headers(ours, request)
    [body] = json.loads(ours.content)["bookings"]
    assert theirs.items() <= body.items()
    assert outcome == Confirmed("840043", {"currency": "USD", "finances": {"currency": "USD", "totalPaid": 0}})


@with_recordings
async def test_a_recorded_booking_with_a_price_is_read_exactly() -> None:
    request, response = recorded("StrictBookings-create_strict_booking-creates_a_booking")
    [theirs] = json.loads(request["body"]["string"])["bookings"]
    outcome, (_, ours) = await create(
        booking(numberOfAdults=3, numberOfChildren=2, totalPrice=63, currency="EUR", comments="some content"),
        CLIENT,
        replayed(response),
    )
    [body] = json.loads(ours.content)["bookings"]
    shared = ("adults", "children", "final_price", "currency", "comments")
    assert {name: body[name] for name in shared} == {name: theirs[name] for name in shared}
    finances = {"totalPrice": 63, "currency": "EUR", "totalPaid": 0, "remainingBalance": 63}
    assert outcome == Confirmed("840068", {"totalPrice": 63, "currency": "EUR", "finances": finances})


@with_recordings
async def test_a_recorded_list_without_references_decides_nothing() -> None:
    _, response = recorded("Bookings-bookings-returns_bookings")
    lookup, (ours,) = await find(replayed(response))
    assert ours.url.path == "/api/v3/bookings"
    assert isinstance(lookup, Deferred)
    assert lookup.reason == "pms_scope_too_small"


@with_recordings
async def test_the_vendors_examples_are_read() -> None:
    examples = CONTRACTS / "bookingsync" / "examples"
    shown = json.loads((examples / "bookings--bookings_read-bookings_write-scope-response.json").read_text())
    outcome = await booked(201, shown)
    finances = {"totalPrice": 2700, "currency": "USD", "totalPaid": 2700, "remainingBalance": 0}
    record = {"totalPrice": 2700, "currency": "USD", "notes": "", "finances": finances}
    assert outcome == Confirmed("80", record)
    assert (await find(answered(200, shown, {"X-Total-Pages": "1"})))[0] == Absent()


@with_recordings
async def test_every_field_that_is_sent_is_one_that_the_vendor_shows() -> None:
    examples = CONTRACTS / "bookingsync" / "examples"
    _, (client_request, booking_request) = await create(
        booking(transactionId="tx-1", arrivalEstimatedTime="15:00", numberOfAdults=2), CLIENT, httpx.Response(503)
    )
    answer = json.loads((examples / "bookings--bookings_read-bookings_write-scope-response.json").read_text())
    request = json.loads((examples / "bookings--create_with_comments_fees_and_taxes-request.json").read_text())
    [sent] = json.loads(booking_request.content)["bookings"]
    assert sent.keys() <= answer["bookings"][0].keys() | request["bookings"][0].keys()
    clients = json.loads((examples / "clients--create-request.json").read_text())
    [sent] = json.loads(client_request.content)["clients"]
    [shown] = clients["clients"]
    assert sent.keys() <= shown.keys()
    for group in ("addresses", "emails", "phones"):
        assert sent[group][0].keys() <= shown[group][0].keys()
