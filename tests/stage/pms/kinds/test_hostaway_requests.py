"""Hostaway: what is sent, and the tokens that it is sent with."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options
from forwarder.reservation.outcome import Cancelled, Confirmed, Deferred, Rejected
from tests.support.cases import for_each
from tests.support.pms.dialogue import Reply, Vendor, answered
from tests.support.pms.kinds.hostaway import (
    CLIENT,
    TOKEN,
    a_reservation,
    cancelled,
    connected,
    create,
    fail,
    found,
    listing,
    success,
    token,
)
from tests.support.simulator.server import CARD, QuickClock, booking

FULL = booking(
    card=CARD,
    propertyId="40160",
    roomId="40160",
    numberOfAdults=2,
    numberOfInfants=1,
    comments="Twins",
    transactionId="tx-1",
    arrivalEstimatedTime="15:30",
    departureEstimatedTime=10,
)


async def test_a_reservation_as_it_is_sent() -> None:
    vendor = Vendor(success(a_reservation()))
    await create(vendor, FULL)
    [request] = vendor.requests
    assert (request.method, str(request.url)) == ("POST", "https://api.hostaway.com/v1/reservations")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert vendor.sent() == {
        "channelId": 2000,
        "listingMapId": 40160,
        "isManuallyChecked": 0,
        "isInitial": 0,
        "customerUserId": FULL.reference,
        "guestName": "Maria Gonzalez",
        "guestFirstName": "Maria",
        "guestLastName": "Gonzalez",
        "guestEmail": "maria@example.com",
        "phone": "34600111222",
        "guestAddress": "Calle Mayor 7",
        "guestZipCode": "28013",
        "guestCity": "Madrid",
        "guestCountry": "ES",
        "numberOfGuests": 3,
        "adults": 2,
        "children": 1,
        "infants": 1,
        "arrivalDate": "2027-03-01",
        "departureDate": "2027-03-04",
        "checkInTime": 15,
        "checkOutTime": 10,
        "totalPrice": 450.35,
        "currency": "EUR",
        "hostNote": "Late arrival\nEstimated arrival: 15:30\nPayment transaction: tx-1",
        "comment": "Twins",
        "status": "new",
    }


async def test_nobody_is_asked_to_overbook() -> None:
    vendor = Vendor(success(a_reservation()))
    await create(vendor)
    assert not vendor.requests[0].url.query


async def test_a_card_is_not_part_of_this_wire() -> None:
    vendor = Vendor(success(a_reservation()))
    await create(vendor, FULL)
    assert b"4111" not in vendor.requests[0].content
    assert b"8264" not in vendor.requests[0].content


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"guest": {"name": "M", "address": {"country": "Hispania"}}}, {"guestCountry", "guestEmail", "phone"}),
        ({"guest": {}}, {"guestName", "guestFirstName", "guestLastName"}),
        (
            {"arrivalEstimatedTime": "in the evening", "departureEstimatedTime": "24:00"},
            {"checkInTime", "checkOutTime"},
        ),
        ({"totalPrice": None, "currency": None, "notes": ""}, {"totalPrice", "currency", "hostNote", "comment"}),
    ],
)
async def test_what_is_not_known_is_left_out(fields: dict[str, Any], left_out: set[str]) -> None:
    vendor = Vendor(success(a_reservation()))
    await create(vendor, booking(**fields))
    assert not left_out & vendor.sent().keys()


@for_each("price", [0.1, 0.07, 7, 999999999.99, 0])
async def test_a_price_is_the_number_that_was_asked(price: float) -> None:
    vendor = Vendor(success(a_reservation()))
    await create(vendor, booking(totalPrice=price))
    assert vendor.sent()["totalPrice"] == price


@for_each("listing_id", ["unknown", "..", "12a", "0", "-1", "\u0661\u0662", "9" * 19])
async def test_of_a_listing_without_a_number_nothing_is_sent(listing_id: str) -> None:
    vendor = Vendor()
    outcome = await create(vendor, booking(propertyId=listing_id))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "property_not_found"
    assert vendor.requests == []


async def test_the_listings_reservations_around_the_arrival_are_searched_page_by_page() -> None:
    other = {"id": 7, "status": "new", "customerUserId": None}
    vendor = Vendor(listing(other, count=2), listing(a_reservation()))
    assert isinstance(await found(vendor), Confirmed)
    first, second = (dict(request.url.params) for request in vendor.requests)
    assert first == {
        "listingId": "5001",
        "arrivalStartDate": "2027-02-28",
        "arrivalEndDate": "2027-03-02",
        "sortOrder": "arrivalDate",
        "limit": "100",
    }
    assert second == first | {"afterId": "7"}


async def test_a_cancellation_says_who_cancels() -> None:
    vendor = Vendor(success(a_reservation(status="cancelled")))
    assert await cancelled(vendor) == Cancelled()
    assert vendor.asked == ["PUT /v1/reservations/81/statuses/cancelled"]
    assert vendor.sent() == {"cancelledBy": "guest"}


def test_there_are_no_options() -> None:
    with pytest.raises(BadOptions, match="forceOverbooking"):
        check_options("hostaway", {"forceOverbooking": True})


async def test_a_client_is_given_a_token_and_waits_until_it_is_good() -> None:
    vendor, clock = Vendor(token("token-1"), success(a_reservation()), success(a_reservation())), QuickClock()
    async with connected(vendor, CLIENT, clock) as pms:
        await pms.create(booking())
        assert clock.slept == [1.0]
        await pms.create(booking())
    asked, first, second = vendor.requests
    assert (asked.method, str(asked.url)) == ("POST", "https://api.hostaway.com/v1/accessTokens")
    assert "authorization" not in asked.headers
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(asked.content.decode()) == {
        "grant_type": ["client_credentials"],
        "client_id": ["61148"],
        "client_secret": ["s3cret"],
        "scope": ["general"],
    }
    assert {request.headers["authorization"] for request in (first, second)} == {"Bearer token-1"}


@pytest.mark.parametrize("status", [403, 401])
async def test_a_token_that_has_ended_is_renewed_once(status: int) -> None:
    vendor = Vendor(token("token-1"), fail("Access denied", status), token("token-2"), success(a_reservation()))
    async with connected(vendor, CLIENT) as pms:
        assert isinstance(await pms.create(booking()), Confirmed)
    assert vendor.requests[3].headers["authorization"] == "Bearer token-2"
    vendor = Vendor(token("token-1"), fail("Access denied", status), token("token-2"), fail("Access denied", status))
    async with connected(vendor, CLIENT) as pms:
        outcome = await pms.create(booking())
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_unauthorized"


async def test_a_token_of_ones_own_is_not_renewed() -> None:
    vendor = Vendor(fail("Access denied", 403))
    outcome = await create(vendor)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_unauthorized"


class _Later(QuickClock):
    """As long after the machine's clock as `ahead` says."""

    ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


async def test_a_token_is_renewed_before_it_ends() -> None:
    vendor, clock = Vendor(token("token-1", 3600), success(a_reservation()), token("token-2"), listing()), _Later()
    async with connected(vendor, CLIENT, clock) as pms:
        await pms.create(booking())
        clock.ahead = timedelta(seconds=3550)
        await pms.find(booking())
    assert vendor.requests[3].headers["authorization"] == "Bearer token-2"


@for_each(
    ("reply", "reason", "wait"),
    [
        (
            answered(401, {"error": "invalid_client", "message": "Client authentication failed"}),
            "pms_unauthorized",
            None,
        ),
        (answered(400, {"error": "unsupported_grant_type"}), "pms_unauthorized", None),
        (fail("Access denied", 403), "pms_unauthorized", None),
        (answered(404, b""), "pms_refused_request", None),
        (answered(429, b"", {"Retry-After": "8"}), "pms_throttled", 8.0),
        (answered(500, b""), "pms_failed", None),
        (answered(200, b"<html>"), "pms_answer_not_understood", None),
        (answered(200, {"access_token": "", "expires_in": 9}), "pms_answer_not_understood", None),
        (httpx.ReadTimeout("late"), "pms_timed_out", None),
    ],
)
async def test_without_a_token_nothing_is_in_doubt(reply: Reply, reason: str, wait: float | None) -> None:
    vendor = Vendor(reply)
    async with connected(vendor, CLIENT) as pms:
        outcome = await pms.create(booking())
    assert isinstance(outcome, Deferred)
    assert (outcome.reason, outcome.retry_after_seconds) == (reason, wait)
    assert vendor.asked == ["POST /v1/accessTokens"]
