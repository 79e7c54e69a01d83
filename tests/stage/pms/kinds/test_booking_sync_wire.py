"""BookingSync on the wire: our requests and its answers, beside the vendor's recorded traffic and examples, every one of them.

The recordings are no part of the project; `tests.support.pms.vendor_contracts` says where they are looked for.
"""

import json
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from forwarder.pms.port import AccountConnection
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred
from tests.support.pms.kinds.booking_sync import (
    CLIENT,
    CONNECTION,
    a_booking,
    answered,
    booked,
    cancel,
    create,
    find,
    resource_in,
    with_options,
)
from tests.support.pms.vendor_contracts import contract_document, contracts_path
from tests.support.simulator.server import booking

CASSETTES = {
    "client": "Clients-create_client-creates_a_new_client",
    "booking": "Bookings-create_booking-creates_a_booking",
    "strict": "StrictBookings-create_strict_booking-creates_a_booking",
    "list": "Bookings-bookings-returns_bookings",
    "one": "Bookings-booking-returns_a_single_booking",
}
MONEY = ("final_price", "initial_price", "price_to_pay_now", "price", "amount")


def recorded(cassette: str) -> tuple[dict[str, Any], httpx.Response]:
    """The request and the response of a recording's one exchange."""
    document = contract_document("bookingsync", "cassettes", f"{CASSETTES[cassette]}.yml")
    [exchange] = document["http_interactions"]
    return exchange["request"], replayed(exchange["response"])


def replayed(response: dict[str, Any]) -> httpx.Response:
    """A recorded response; without its length and framing, which were those of the wire."""
    framing = {"transfer-encoding", "content-encoding", "content-length", "connection"}
    headers = [(name, value) for name, values in response["headers"].items() for value in values]
    kept = [(name, value) for name, value in headers if name.lower() not in framing]
    return httpx.Response(response["status"]["code"], headers=kept, content=response["body"]["string"].encode())


def example(name: str, resources: str) -> dict[str, Any]:
    """The one resource of the vendor's example."""
    [resource] = contract_document("bookingsync", "examples", f"{name}.json")[resources]
    assert isinstance(resource, dict)
    return resource


def assert_same_address_and_headers(ours: httpx.Request, theirs: dict[str, Any]) -> None:
    recorded_url = urlsplit(theirs["uri"])
    assert ours.method == theirs["method"].upper()
    assert ours.url.path == recorded_url.path
    with_body = ("Accept", "Content-Type") if ours.content else ("Accept",)
    for name in with_body:
        assert [ours.headers[name]] == theirs["headers"][name]
    assert theirs["headers"]["Authorization"] == ["Bearer <<ACCESS_TOKEN>>"]
    assert ours.headers["Authorization"] == "Bearer token-7"


def meaning(value: Any, name: str = "") -> Any:
    """JSON with each amount as the decimal that it is, whether "63" or "63.0"."""
    if isinstance(value, dict):
        return {key: meaning(part, key) for key, part in value.items()}
    if isinstance(value, list):
        return [meaning(part) for part in value]
    return (type(value), Decimal(value)) if name in MONEY and value is not None else value


def test_every_recording_is_replayed() -> None:
    folder = contracts_path("bookingsync", "cassettes")
    assert {path.stem for path in folder.glob("*.yml")} == set(CASSETTES.values())


async def test_a_client_is_created_as_recorded() -> None:
    request, response = recorded("client")
    [theirs] = json.loads(request["body"]["string"])["clients"]
    guest = {
        "name": theirs["fullname"],
        "email": theirs["emails"][0]["email"],
        "address": {"city": theirs["city"], "country": theirs["country_code"]},
    }
    made = answered(201, {"bookings": [a_booking()]})
    outcome, (ours, next_request) = await create(booking(guest=guest), response, made)
    assert_same_address_and_headers(ours, request)
    client = resource_in(ours, "clients")
    # Since the recording, the vendor's documentation has moved the place into a list of addresses.
    place = {"city": theirs.pop("city"), "country_code": theirs.pop("country_code")}
    assert client == {**theirs, "addresses": [{"label": "default", **place}]}
    assert resource_in(next_request, "bookings")["client_id"] == json.loads(response.content)["clients"][0]["id"]
    assert isinstance(outcome, Confirmed)


async def test_a_booking_is_created_as_recorded() -> None:
    request, response = recorded("booking")
    [theirs] = json.loads(request["body"]["string"])["bookings"]
    rental = int(urlsplit(request["uri"]).path.split("/")[-2])
    only_the_stay: dict[str, Any] = dict.fromkeys(
        ("numberOfGuests", "numberOfChildren", "totalPrice", "currency", "notes")
    )
    days = {"arrivalDate": theirs["start_at"], "departureDate": theirs["end_at"]}
    asked = booking(propertyId=rental, roomId=rental, **days, **only_the_stay)
    outcome, (_, ours) = await create(asked, CLIENT, response)
    assert_same_address_and_headers(ours, request)
    assert resource_in(ours, "bookings") == {**theirs, "client_id": 77, "external_reference": asked.reference}
    assert outcome == Confirmed("840043", {"currency": "USD", "finances": {"currency": "USD", "totalPaid": 0}})


def strict_account(theirs: dict[str, Any]) -> AccountConnection:
    return with_options(
        strictBookings=True,
        liveQuote=True,
        sourceId=int(theirs["source_id"]),
        checkinTime=theirs["start_at"][11:16],
        checkoutTime=theirs["end_at"][11:16],
    )


def strict_booking(theirs: dict[str, Any]) -> Booking:
    client = theirs["client"]
    guest = {
        "firstName": client["firstname"],
        "lastName": client["lastname"],
        "email": client["email"],
        "phone": client["phone_number"],
        "address": {"country": client["country_code"]},
    }
    return booking(
        propertyId=theirs["rental_id"],
        roomId=theirs["rental_id"],
        arrivalDate=theirs["start_at"][:10],
        departureDate=theirs["end_at"][:10],
        guest=guest,
        numberOfGuests=theirs["adults"] + theirs["children"],
        numberOfAdults=theirs["adults"],
        numberOfChildren=theirs["children"],
        totalPrice=float(theirs["final_price"]),
        currency=theirs["currency"],
        comments=theirs["comments"][0]["content"],
        notes=None,
    )


async def test_a_strict_booking_is_created_as_recorded() -> None:
    request, response = recorded("strict")
    [theirs] = json.loads(request["body"]["string"])["bookings"]
    asked = strict_booking(theirs)
    price = {"final_price": 63.0, "price_to_pay_now": 18.9, "currency": "EUR"}
    quote = answered(200, {"rentals": [{"id": theirs["rental_id"], **price}]})
    outcome, (_, ours) = await create(asked, quote, response, connection=strict_account(theirs))
    assert_same_address_and_headers(ours, request)
    body = resource_in(ours, "bookings")
    assert meaning(body) == meaning({**theirs, "external_reference": asked.reference})
    finances = {"totalPrice": 63, "currency": "EUR", "totalPaid": 0, "remainingBalance": 63}
    assert outcome == Confirmed("840068", {"totalPrice": 63, "currency": "EUR", "finances": finances})


async def test_a_recorded_list_without_references_decides_nothing() -> None:
    request, response = recorded("list")
    lookup, (ours,) = await find(response)
    assert_same_address_and_headers(ours, request)
    theirs = dict(part.split("=") for part in urlsplit(request["uri"]).query.split("&"))
    assert theirs.items() <= dict(ours.url.params).items()
    assert isinstance(lookup, Deferred)
    assert lookup.reason == "pms_scope_too_small"


async def test_a_recorded_booking_that_stands_is_not_taken_for_cancelled() -> None:
    request, response = recorded("one")
    not_found = answered(404, {"error": "Not found"})
    cancellation, (_, ours) = await cancel(not_found, response, pms_id="829165")
    assert_same_address_and_headers(ours, request)
    assert isinstance(cancellation, Deferred)


async def test_recorded_rate_headers_ask_for_no_pause_while_there_is_something_left() -> None:
    for cassette in CASSETTES:
        _, response = recorded(cassette)
        assert int(response.headers["X-RateLimit-Limit"]) == 1000
        assert int(response.headers["X-RateLimit-Remaining"]) > 0


# --- the vendor's examples ------------------------------------------------------------------------------------------------


def asked_for(shown: Any) -> Booking:
    """What the vendor's example answers."""
    [made] = shown["bookings"]
    return booking(propertyId=made["links"]["rental"], roomId=made["links"]["rental"])


async def test_the_vendors_examples_are_read() -> None:
    name = "bookings--bookings_read-bookings_write-scope-response"
    shown = contract_document("bookingsync", "examples", f"{name}.json")
    outcome = await booked(201, shown, asked=asked_for(shown))
    assert isinstance(outcome, Confirmed)
    assert outcome.pms_reservation_id == "80"
    finances = outcome.record["finances"]
    assert finances["totalPrice"] == finances["totalPaid"] == 2700
    assert finances["remainingBalance"] == 0
    assert finances["basePrice"]["totalBasePrice"] == 3000
    assert finances["discount"]["totalDiscount"] == 300
    assert (await find(answered(200, shown, {"X-Total-Pages": "1"})))[0] == Absent()


async def test_the_vendors_fees_and_taxes_are_lines() -> None:
    name = "bookings--bookings_read-bookings_write_with_comments_fees_and_taxes-scope-response"
    shown = contract_document("bookingsync", "examples", f"{name}.json")
    outcome = await booked(201, shown, asked=asked_for(shown))
    assert isinstance(outcome, Confirmed)
    finances = outcome.record["finances"]
    assert finances["fee"]["breakdown"] == [
        {"name": "Fee1", "type": "Fee", "total": 100},
        {"name": "Fee2", "type": "Fee", "total": 30},
    ]
    assert finances["tax"]["breakdown"] == [
        {"name": "Tax1", "type": "Tax", "total": 60},
        {"name": "Tax2", "type": "Tax", "total": 40},
    ]
    parts = (finances["basePrice"]["totalBasePrice"], finances["fee"]["totalFee"], finances["tax"]["totalTax"])
    # What the vendor's own example of such a booking asks for.
    asked = example("bookings--create_with_comments_fees_and_taxes-request", "bookings")
    assert sum(parts) - finances["discount"]["totalDiscount"] == Decimal(asked["final_price"])


async def test_a_booking_of_another_application_shows_no_reference() -> None:
    shown = contract_document("bookingsync", "examples", "bookings--public-bookings_write_owned-scope-response.json")
    lookup, _ = await find(answered(200, shown, {"X-Total-Pages": "1"}))
    assert isinstance(lookup, Deferred)
    assert lookup.reason == "pms_scope_too_small"


async def test_every_field_of_a_client_and_a_booking_is_one_that_the_vendor_shows() -> None:
    _, (client_request, booking_request) = await create(
        booking(transactionId="tx-1", arrivalEstimatedTime="15:00", numberOfAdults=2), CLIENT, httpx.Response(503)
    )
    answer = example("bookings--bookings_read-bookings_write-scope-response", "bookings")
    request = example("bookings--create_with_comments_fees_and_taxes-request", "bookings")
    assert resource_in(booking_request, "bookings").keys() <= answer.keys() | request.keys()
    sent, shown = resource_in(client_request, "clients"), example("clients--create-request", "clients")
    assert sent.keys() <= shown.keys()
    for group in ("addresses", "emails", "phones"):
        assert sent[group][0].keys() <= shown[group][0].keys()


async def test_quoted_fees_and_taxes_are_named_as_in_the_vendors_example() -> None:
    quote = {
        "id": 5001,
        "currency": "EUR",
        "initial_price": 700.0,
        "final_price": 858.33,
        "price_details": {
            "taxes": [
                {
                    "name": {"en": "VAT"},
                    "percentage": "10.0",
                    "amount": "58.33",
                    "taxable_type": "Rental",
                    "taxable_id": 2,
                    "tax_id": 1,
                    "included": False,
                }
            ],
            "fees": [
                {
                    "name": {"en": "some fee"},
                    "required": True,
                    "price": "100.0",
                    "quantity": 1,
                    "id": 10,
                    "rentals_fee_id": 12,
                }
            ],
        },
    }
    asked = booking(totalPrice=858.33)
    answers = (answered(200, {"rentals": [quote]}), CLIENT, httpx.Response(503))
    _, (search, _, ours) = await create(asked, *answers, connection=with_options(liveQuote=True))
    assert search.url.path == "/api/v3/rentals/search"
    sent = resource_in(ours, "bookings")
    shown = example("bookings--create_with_comments_fees_and_taxes-request", "bookings")
    for group in ("bookings_fees", "bookings_taxes"):
        [line], like = sent[group], shown[group][0]
        assert {name: type(value) for name, value in line.items()} == {name: type(like[name]) for name in like}
    assert sent["bookings_fees"] == [
        {"name": "some fee", "price": "100.0", "times_booked": "1", "rentals_fee_id": "12"}
    ]
    assert (sent["initial_price"], sent["final_price"], sent["currency"]) == ("700.0", "858.33", "EUR")
    assert sent["bookings_taxes"][0]["amount"] == "58.33"


@pytest.mark.parametrize("resources", ["clients", "bookings"])
async def test_what_is_sent_is_json_that_holds_one_resource(resources: str) -> None:
    _, requests = await create(booking(), CLIENT, httpx.Response(503), connection=CONNECTION)
    body = json.loads(requests[("clients", "bookings").index(resources)].content)
    assert list(body) == [resources]
    assert len(body[resources]) == 1


async def test_every_field_of_a_payment_is_one_that_the_vendor_shows() -> None:
    asked = booking(morChannel="SELF", transactionId="tx-1")
    made = answered(201, {"bookings": [a_booking()]})
    _, (_, _, ours) = await create(
        asked, CLIENT, made, httpx.Response(500), connection=with_options(recordPayments=True)
    )
    assert ours.url.path == "/api/v3/bookings/5/payments"
    sent = resource_in(ours, "payments")
    shown = example("payments--payments_write_owned-payments_read-payments_write-scope-response", "payments")
    assert sent.keys() <= shown.keys()
    like = example("payments--create-request", "payments")
    assert {name: type(sent[name]) for name in sent.keys() & like.keys()} == {
        name: type(like[name]) for name in sent.keys() & like.keys()
    }
