"""BookingSync: the price is asked for first, and strict bookings, where the account's options say so."""

from typing import Any

import httpx
import pytest

from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options
from forwarder.reservation.outcome import Absent, Confirmed, Deferred, InDoubt, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.booking_sync import (
    CLIENT,
    a_booking,
    answered,
    asked_for,
    create,
    find,
    listing,
    resource_in,
    with_options,
)
from tests.support.simulator.server import booking

QUOTING = with_options(liveQuote=True)
STRICT = with_options(strictBookings=True)
MADE = answered(201, {"bookings": [a_booking()]})


def quoted(**fields: Any) -> httpx.Response:
    return answered(200, {"rentals": [{"id": 5001, "currency": "EUR", "final_price": 450.35, **fields}]})


async def test_the_price_is_asked_for_with_the_stay() -> None:
    outcome, requests = await create(booking(), quoted(), CLIENT, MADE, connection=QUOTING)
    assert isinstance(outcome, Confirmed)
    assert asked_for(requests)[0] == ("GET", "/rentals/search")
    assert dict(requests[0].url.params) == {
        "rental_id": "5001",
        "start_at": "2027-03-01",
        "end_at": "2027-03-04",
        "adults": "2",
        "children": "1",
    }


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"totalPrice": 450.36}, quoted()),
        ({"totalPrice": 450}, quoted()),
        ({"currency": "USD"}, quoted()),
        ({}, quoted(final_price=450.350001)),
    ],
)
async def test_another_price_is_refused(asked: dict[str, Any], answer: httpx.Response) -> None:
    outcome, requests = await create(booking(**asked), answer, connection=QUOTING)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "price_changed"
    assert "450.35" in outcome.problem.detail
    assert len(requests) == 1


async def test_who_names_no_price_books_at_the_quoted_one() -> None:
    outcome, requests = await create(
        booking(totalPrice=None, currency=None), quoted(), CLIENT, MADE, connection=QUOTING
    )
    assert isinstance(outcome, Confirmed)
    sent = resource_in(requests[2], "bookings")
    assert (sent["final_price"], sent["currency"]) == ("450.35", "EUR")


async def test_what_is_not_free_is_refused_before_anything_is_made() -> None:
    outcome, requests = await create(booking(), answered(200, {"rentals": []}), connection=QUOTING)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "room_unavailable"
    assert len(requests) == 1


@for_each(
    "answer",
    [
        quoted(id=7),
        quoted(final_price=None),
        quoted(final_price=True),
        quoted(currency=5),
        quoted(price_details={"fees": [{}]}),
        quoted(price_details={"taxes": [5]}),
        quoted(price_details=[5]),
        answered(200, {"rentals": 5}),
        answered(200, [5]),
        answered(200, b"<html>"),
        httpx.Response(500),
        httpx.Response(401),
        httpx.ReadTimeout("late"),
    ],
)
async def test_a_quote_that_is_none_is_only_a_delay(answer: httpx.Response | httpx.HTTPError) -> None:
    outcome, requests = await create(booking(), answer, connection=QUOTING)
    assert isinstance(outcome, Deferred)
    assert len(requests) == 1


# --- strict bookings ------------------------------------------------------------------------------------------------------


async def test_a_strict_booking_is_one_request() -> None:
    outcome, requests = await create(booking(), MADE, connection=STRICT)
    assert isinstance(outcome, Confirmed)
    assert asked_for(requests) == [("POST", "/strict_bookings")]


@pytest.mark.parametrize(
    ("guest", "client"),
    [
        ({"name": "Maria del Mar Gonzalez"}, {"firstname": "Maria", "lastname": "del Mar Gonzalez"}),
        ({"name": "Cher"}, {"firstname": "Cher", "lastname": "Cher"}),
        (
            {"email": "m@example.com"},
            {"firstname": "m@example.com", "lastname": "m@example.com", "email": "m@example.com"},
        ),
        ({}, {"firstname": "Guest", "lastname": "Guest"}),
    ],
)
async def test_a_strict_bookings_client_has_two_names(guest: dict[str, Any], client: dict[str, str]) -> None:
    _, (request,) = await create(booking(guest=guest), MADE, connection=STRICT)
    assert resource_in(request, "bookings")["client"] == client


@for_each(
    ("errors", "code"),
    [
        ({"client.email": ["is invalid"]}, "guest_refused"),
        ({"client": ["can't be blank"]}, "guest_refused"),
        ({"start_at": ["is not available"]}, "room_unavailable"),
        ({"rental_id": ["is invalid"]}, "property_not_found"),
        ({"final_price": ["is too low"]}, "pms_refused"),
    ],
)
async def test_a_strict_booking_is_refused(errors: object, code: str) -> None:
    outcome, _ = await create(booking(), answered(422, {"errors": errors}), connection=STRICT)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == code


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (answered(404, {"error": "Not found"}), Deferred),  # nothing was made under this base URL yet: it may be wrong
        (httpx.ReadTimeout("late"), InDoubt),
        (answered(503, b""), InDoubt),
        (answered(201, b""), InDoubt),
    ],
)
async def test_other_answers_to_a_strict_booking(answer: httpx.Response | httpx.HTTPError, kind: type) -> None:
    outcome, _ = await create(booking(), answer, connection=STRICT)
    assert type(outcome) is kind


@for_each(
    ("other", "absent"),
    [
        ({"external_reference": "another"}, True),
        ({"external_reference": None, "start_at": "2027-02-20T16:00:00Z", "end_at": "2027-03-01T10:00:00Z"}, True),
        ({"external_reference": None, "start_at": "2027-03-04T16:00:00Z", "end_at": "2027-03-09T10:00:00Z"}, True),
        ({"external_reference": None, "start_at": "2027-03-03T16:00:00Z", "end_at": "2027-03-09T10:00:00Z"}, False),
        ({"external_reference": None, "status": "Canceled"}, False),
        ({"external_reference": None, "start_at": "soon", "end_at": 5}, False),
    ],
)
async def test_a_strict_booking_may_be_there_without_our_reference(other: dict[str, Any], *, absent: bool) -> None:
    lookup, _ = await find(listing([a_booking(**other)]), connection=STRICT)
    if absent:
        assert lookup == Absent()
    else:
        assert isinstance(lookup, Deferred)
        assert lookup.reason == "pms_reference_not_shown"
    assert (await find(listing([a_booking(**other)])))[0] == Absent()


# --- options --------------------------------------------------------------------------------------------------------------

GATEWAY = {"gatewayId": "123", "gatewayName": "stripe"}


@for_each(
    "options",
    [
        {},
        {"strictBookings": True, "liveQuote": True, "sourceId": 7, "checkinTime": "16:00", "checkoutTime": "10:00"},
        {"recordPayments": True, "securePayments": GATEWAY},
        {"securePayments": {**GATEWAY, "url": "http://127.0.0.1:9/api", "holdMinutes": 6}},
        {"tokenUrl": "https://auth.example/oauth/token", "redirectUri": "urn:ietf:wg:oauth:2.0:oob"},
    ],
)
def test_options_that_an_account_may_have(options: dict[str, Any]) -> None:
    check_options("booking-sync", options)


@for_each(
    ("options", "says"),
    [
        ({"strict": True}, "strict"),
        ({"strictBookings": "perhaps"}, "strictBookings"),
        ({"strictBookings": True, "securePayments": GATEWAY}, "exclude each other"),
        ({"checkinTime": "4pm"}, "checkinTime"),
        ({"checkinTime": "24:00"}, "checkinTime"),
        ({"sourceId": 0}, "sourceId"),
        ({"securePayments": {}}, "securePayments.gatewayId"),
        ({"securePayments": {**GATEWAY, "url": "http://pay.example/api"}}, "https://"),
        ({"securePayments": {**GATEWAY, "holdMinutes": 5}}, "holdMinutes"),
        ({"tokenUrl": "http://auth.example/token"}, "https://"),
        ({"tokenUrl": "ftp://auth.example/token"}, "tokenUrl"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadOptions, match=says):
        check_options("booking-sync", options)
