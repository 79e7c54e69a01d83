"""BookingSync on the wire: our requests and its answers, beside the vendor's recorded traffic and examples.

The recordings are no part of the project: they are read from FORWARDER_CONTRACTS_DIR, or from ../shared/contracts.
"""

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from forwarder.pms.adapter import Cancellation, Cancelled
from forwarder.pms.booking_sync import BookingSyncAdapter
from forwarder.pms.directory import open_directory
from forwarder.pms.port import Connection, Pms
from forwarder.pms.wire import Patience, Wire
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt, Lookup, Outcome, Rejected
from tests.support.manual_clock import ManualClock
from tests.support.simulator import CARD, booking

NOW = datetime(2027, 1, 1, tzinfo=UTC)
BASE_URL = "https://www.bookingsync.com/api/v3"
CONNECTION = Connection("acme", "booking-sync", BASE_URL, "token-7")
CLIENT = httpx.Response(201, json={"clients": [{"id": 77}]})
CONTRACTS = Path(
    os.environ.get("FORWARDER_CONTRACTS_DIR", Path(__file__).resolve().parents[2].parent / "shared" / "contracts")
)

with_recordings = pytest.mark.skipif(
    not (CONTRACTS / "bookingsync").is_dir(),
    reason=f"no recorded traffic at {CONTRACTS}/bookingsync; FORWARDER_CONTRACTS_DIR says where it is",
)


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
async def connected(vendor: Vendor) -> AsyncIterator[Pms]:
    async with open_directory(ManualClock(NOW), transport=httpx.MockTransport(vendor)) as directory:
        yield directory.connect(CONNECTION)


async def create(asked: Booking, *answers: httpx.Response | httpx.HTTPError) -> tuple[Outcome, list[httpx.Request]]:
    vendor = Vendor(*answers)
    async with connected(vendor) as pms:
        return await pms.create(asked), vendor.requests


async def booked(status: int, body: object, **headers: str) -> Outcome:
    """What a create comes to whose booking is answered so, once the client was created."""
    outcome, _ = await create(booking(), CLIENT, _response(status, body, headers))
    return outcome


async def find(*answers: httpx.Response) -> tuple[Lookup, list[httpx.Request]]:
    vendor = Vendor(*answers)
    async with connected(vendor) as pms:
        return await pms.find(booking()), vendor.requests


async def cancel(
    answer: httpx.Response | httpx.HTTPError, pms_id: str = "840043"
) -> tuple[Cancellation, list[httpx.Request]]:
    vendor = Vendor(answer)
    wire = Wire(httpx.MockTransport(vendor), ManualClock(NOW), Patience())
    return await BookingSyncAdapter(CONNECTION, ManualClock(NOW)).cancel(pms_id, wire.push()), vendor.requests


def _response(status: int, body: object, headers: dict[str, str] | None = None) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.Response(status, content=content, headers=headers)


def a_booking(**fields: Any) -> dict[str, Any]:
    return {"id": 5, "status": "Booked", "external_reference": booking().reference} | fields


def listing(bookings: Sequence[dict[str, Any]], *, pages: int | None = 1) -> httpx.Response:
    headers = None if pages is None else {"X-Total-Pages": str(pages)}
    return _response(200, {"bookings": bookings}, headers)


# --- beside the recordings -----------------------------------------------------------------------------------------------


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
    made = _response(201, {"bookings": [a_booking()]})
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
    assert (await find(_response(200, shown, {"X-Total-Pages": "1"})))[0] == Absent()


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


# --- what is sent --------------------------------------------------------------------------------------------------------


async def test_the_guest_then_the_booking() -> None:
    asked = booking(card=CARD, comments="Twins", transactionId="tx-1", arrivalEstimatedTime="15:00", propertyId="a/7")
    _, requests = await create(asked, CLIENT, httpx.Response(503))
    [client], [sent] = (
        json.loads(request.content)[name] for request, name in zip(requests, ("clients", "bookings"), strict=True)
    )
    assert str(requests[1].url) == f"{BASE_URL}/rentals/a%2F7/bookings"
    assert client == {
        "fullname": "Maria Gonzalez",
        "firstname": "Maria",
        "lastname": "Gonzalez",
        "emails": [{"label": "default", "email": "maria@example.com"}],
        "phones": [{"label": "default", "number": "34600111222"}],
        "addresses": [
            {"label": "default", "address1": "Calle Mayor 7", "city": "Madrid", "zip": "28013", "country_code": "ES"}
        ],
    }
    assert sent == {
        "start_at": "2027-03-01",
        "end_at": "2027-03-04",
        "booked": True,
        "client_id": 77,
        "adults": 2,
        "children": 1,
        "currency": "EUR",
        "final_price": "450.35",
        "external_reference": asked.reference,
        "notes": "Late arrival",
        "expected_checkin_time": "15:00",
        "comments": [{"content": "Twins"}, {"content": "Paid with the booking, transaction tx-1"}],
    }


async def test_a_card_is_not_part_of_this_wire() -> None:
    _, requests = await create(booking(card=CARD), CLIENT, httpx.Response(503))
    assert not [request for request in requests if b"4111" in request.content or b"8264" in request.content]


@pytest.mark.parametrize(
    ("guest", "fullname"),
    [
        ({"firstName": "Maria", "lastName": "Gonzalez"}, "Maria Gonzalez"),
        ({"lastName": "Gonzalez"}, "Gonzalez"),
        ({"email": "maria@example.com"}, "maria@example.com"),
        ({}, "Guest"),
    ],
)
async def test_a_guest_has_a_name_whatever_is_known(guest: dict[str, Any], fullname: str) -> None:
    _, (request, _) = await create(booking(guest=guest), CLIENT, httpx.Response(503))
    assert json.loads(request.content)["clients"][0]["fullname"] == fullname


async def test_what_the_vendor_would_not_take_is_left_out() -> None:
    guest = {"name": "Maria", "phone": "", "address": {"country": "Spain"}}
    _, (client, sent) = await create(
        booking(guest=guest, arrivalEstimatedTime="in the evening", notes=None), CLIENT, httpx.Response(503)
    )
    assert json.loads(client.content)["clients"] == [{"fullname": "Maria"}]
    assert not {"expected_checkin_time", "notes", "comments"} & json.loads(sent.content)["bookings"][0].keys()


@pytest.mark.parametrize(
    ("counts", "adults"),
    [
        ({"numberOfAdults": 1}, 1),
        ({"numberOfGuests": 4, "numberOfChildren": 1, "numberOfInfants": 1}, 2),
        ({"numberOfGuests": 1, "numberOfChildren": 3}, 0),
        ({"numberOfGuests": None, "numberOfChildren": None}, None),
    ],
)
async def test_adults_are_those_who_are_not_said_to_be_children(counts: dict[str, Any], adults: int | None) -> None:
    fields = {"numberOfChildren": None, "numberOfInfants": None} | counts
    _, (_, sent) = await create(booking(**fields), CLIENT, httpx.Response(503))
    assert json.loads(sent.content)["bookings"][0].get("adults") == adults


@pytest.mark.parametrize(
    ("price", "text"), [(0.1, "0.1"), (1e11, "100000000000.0"), (7, "7"), (0.07, "0.07"), (None, None)]
)
async def test_a_price_is_a_decimal_text(price: float | None, text: str | None) -> None:
    _, (_, sent) = await create(booking(totalPrice=price), CLIENT, httpx.Response(503))
    assert json.loads(sent.content)["bookings"][0].get("final_price") == text


# --- the client ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.ReadTimeout("late"), "pms_timed_out"),
        (httpx.ReadError("reset"), "pms_connection_lost"),
        (httpx.Response(500), "pms_failed"),
        (httpx.Response(503), "pms_unavailable"),
        (httpx.Response(404), "pms_refused_request"),
        (httpx.Response(401, json={"error": "Not authorized"}), "pms_unauthorized"),
        (httpx.Response(201, content=b"<html>"), "pms_answer_not_understood"),
        (httpx.Response(201, json={"clients": []}), "pms_answer_not_understood"),
        (httpx.Response(201, json={"clients": [{"id": "x"}]}), "pms_answer_not_understood"),
    ],
)
async def test_until_there_is_a_client_nothing_is_in_doubt(
    answer: httpx.Response | httpx.HTTPError, reason: str
) -> None:
    outcome, requests = await create(booking(), answer)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == reason
    assert len(requests) == 1


async def test_a_guest_that_is_refused() -> None:
    refusal = httpx.Response(422, json={"errors": {"emails": ["maria@example.com is invalid"]}})
    outcome, _ = await create(booking(), refusal)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "guest_refused"
    assert outcome.problem.detail == "emails: […] is invalid"


# --- the booking -----------------------------------------------------------------------------------------------------------


async def test_amounts_are_exact() -> None:
    made = a_booking(
        final_price="0.30", paid_amount="0.10", currency="EUR", payment_url="https://pay.test/5", door_key_code="12#"
    )
    outcome = await booked(201, {"bookings": [made]})
    finances = {"totalPrice": 0.3, "totalPaid": 0.1, "remainingBalance": 0.2, "currency": "EUR"}
    record = {
        "totalPrice": 0.3,
        "currency": "EUR",
        "paymentUrl": "https://pay.test/5",
        "codes": {"accessCode": ["12#"]},
        "finances": finances,
    }
    assert outcome == Confirmed("5", record)


@pytest.mark.parametrize("text", ["a lot", "NaN", "Infinity", "1e400", 5, None, True, ""])
async def test_what_is_no_decimal_amount_is_left_out(text: object) -> None:
    outcome = await booked(201, {"bookings": [a_booking(final_price=text)]})
    assert outcome == Confirmed("5", {"finances": {}})


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ({"start_at": ["is not available"]}, "room_unavailable"),
        ({"base": ["Rental is already booked for this period"]}, "room_unavailable"),
        ({"end_at": ["overlaps with another booking"]}, "room_unavailable"),
        ({"start_at": ["can't be blank"]}, "pms_refused"),
        ({"base": ["final price is missing"]}, "pms_refused"),
        ({"rental_id": ["is invalid"]}, "property_not_found"),
        ({"currency": ["is not included in the list"]}, "pms_refused"),
        ({"start_at": "is not available"}, "room_unavailable"),
        ("nonsense", "pms_refused"),
        ({}, "pms_refused"),
    ],
)
async def test_what_a_422_says(errors: object, code: str) -> None:
    outcome = await booked(422, {"errors": errors})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == code
    assert outcome.problem.status == 409


async def test_the_vendors_words_are_passed_on() -> None:
    outcome = await booked(422, {"errors": {"start_at": ["is not available", "is past"], "base": ["Maria is barred"]}})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.detail == "start_at: is not available, is past; base: […] is barred"


async def test_an_unknown_rental() -> None:
    outcome = await booked(404, {"error": "Not found"})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "property_not_found"


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (401, {"error": "Not authorized"}, Deferred, "pms_unauthorized"),
        (429, {"error": "API v3 rate limit exceeded."}, Deferred, "pms_throttled"),
        (302, b"", Deferred, "pms_redirected"),
        (500, {"error": "oops"}, InDoubt, "pms_failed"),
        (502, b"", InDoubt, "pms_failed"),
        (503, b"", InDoubt, "pms_unavailable"),
        (200, {"bookings": []}, InDoubt, "pms_answer_not_understood"),
        (201, b"", InDoubt, "pms_answer_not_understood"),
        (201, {"bookings": []}, InDoubt, "pms_answer_not_understood"),
        (201, {"bookings": [{"status": "Booked"}]}, InDoubt, "pms_answer_not_understood"),
        (201, {"bookings": [{"id": "5", "status": "Booked"}]}, InDoubt, "pms_answer_not_understood"),
        (201, {"bookings": [a_booking(status="Tentative")]}, InDoubt, "pms_answer_not_understood"),
        (201, {"bookings": [a_booking(), a_booking()]}, InDoubt, "pms_answer_not_understood"),
    ],
)
async def test_what_other_answers_mean(status: int, body: object, kind: type, reason: str) -> None:
    outcome = await booked(status, body)
    assert type(outcome) is kind
    assert isinstance(outcome, Deferred | InDoubt)
    assert outcome.reason == reason


async def test_a_gateway_that_names_a_time_has_not_passed_the_booking_on() -> None:
    outcome = await booked(503, b"", **{"Retry-After": "9"})
    assert isinstance(outcome, Deferred)
    assert outcome.retry_after_seconds == 9.0


async def test_a_booking_that_is_cancelled_from_the_start_is_refused() -> None:
    outcome = await booked(201, {"bookings": [a_booking(status="Canceled")]})
    assert isinstance(outcome, Rejected)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"X-RateLimit-Reset": str(int(NOW.timestamp()) + 1800)}, 1800.0),
        ({"X-RateLimit-Reset": str(int(NOW.timestamp()) - 5)}, 0.0),
        ({"X-RateLimit-Reset": "soon"}, None),
        ({"X-RateLimit-Reset": str(int(NOW.timestamp()) + 1800), "Retry-After": "60"}, 60.0),
        ({}, None),
    ],
)
async def test_the_rate_limit_says_when_it_is_lifted(headers: dict[str, str], seconds: float | None) -> None:
    outcome = await booked(429, b"", **headers)
    assert isinstance(outcome, Deferred)
    assert outcome.retry_after_seconds == seconds


# --- looking up --------------------------------------------------------------------------------------------------------------


async def test_the_rentals_bookings_around_these_nights_are_searched() -> None:
    lookup, (request,) = await find(listing([a_booking(external_reference=None, id=4), a_booking()]))
    assert lookup == Confirmed("5", {"finances": {}})
    assert dict(request.url.params) == {
        "rental_id": "5001",
        "from": "2027-03-01",
        "until": "2027-03-04",
        "include_canceled": "true",
        "per_page": "100",
        "page": "1",
    }


async def test_page_by_page() -> None:
    other = [a_booking(external_reference="other")]
    lookup, requests = await find(listing(other, pages=3), listing(other, pages=3), listing([a_booking()], pages=3))
    assert isinstance(lookup, Confirmed)
    assert [request.url.params["page"] for request in requests] == ["1", "2", "3"]
    assert (await find(listing(other, pages=2), listing(other, pages=2)))[0] == Absent()
    assert (await find(listing([])))[0] == Absent()


async def test_where_no_count_of_pages_is_given_an_empty_page_ends_the_list() -> None:
    other = [a_booking(external_reference="other")]
    lookup, requests = await find(listing(other, pages=None), listing([], pages=None))
    assert lookup == Absent()
    assert len(requests) == 2


async def test_a_list_without_end_decides_nothing() -> None:
    other = [a_booking(external_reference="other")]
    lookup, _ = await find(*(listing(other, pages=99) for _ in range(20)))
    assert isinstance(lookup, Deferred)


@pytest.mark.parametrize("answer", [_response(200, b"<html>"), _response(200, {"bookings": 5}), httpx.Response(500)])
async def test_a_list_that_is_none_decides_nothing(answer: httpx.Response) -> None:
    assert isinstance((await find(answer))[0], Deferred)


async def test_what_was_cancelled_since_is_neither_booked_again_nor_confirmed() -> None:
    lookup, _ = await find(listing([a_booking(status="Canceled")]))
    assert isinstance(lookup, Deferred)
    assert lookup.reason == "cancelled_in_pms"


# --- cancelling --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [204, 404])
async def test_a_cancelled_booking_is_gone(status: int) -> None:
    cancellation, (request,) = await cancel(httpx.Response(status))
    assert cancellation == Cancelled()
    assert (request.method, str(request.url)) == ("DELETE", f"{BASE_URL}/bookings/840043")


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(401), httpx.ReadTimeout("late")])
async def test_a_cancellation_may_be_asked_for_again(answer: httpx.Response | httpx.HTTPError) -> None:
    assert isinstance((await cancel(answer))[0], Deferred)
