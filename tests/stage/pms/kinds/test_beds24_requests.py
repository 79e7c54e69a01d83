"""Beds24: what is sent, every request held against the vendor's OpenAPI document, and the tokens that it is sent with."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from forwarder.pms.port import BadOptions
from forwarder.pms.registry import check_options
from forwarder.reservation.outcome import Cancelled, Confirmed, Deferred, Rejected
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.pms.dialogue import Vendor, answered
from tests.support.pms.kinds.beds24 import (
    BASE_URL,
    NOW,
    STATUSES,
    a_booking,
    cancelled,
    connected,
    create,
    create_many,
    found,
    listing,
    made,
    no,
    open_api,
    posted,
    token,
)
from tests.support.simulator.server import CARD, booking

FULL = booking(
    card=CARD, propertyId=12, roomId=3401, comments="Twins", transactionId="tx-1", arrivalEstimatedTime="15:00"
)


async def test_a_booking_as_it_is_sent() -> None:
    vendor = Vendor(posted(made()))
    assert isinstance(await create(vendor, FULL), Confirmed)
    assert vendor.sent() == [
        {
            "roomId": 3401,
            "status": "confirmed",
            "arrival": "2027-03-01",
            "departure": "2027-03-04",
            "numAdult": 2,
            "numChild": 1,
            "firstName": "Maria",
            "lastName": "Gonzalez",
            "email": "maria@example.com",
            "phone": "34600111222",
            "address": "Calle Mayor 7",
            "city": "Madrid",
            "postcode": "28013",
            "country2": "ES",
            "arrivalTime": "15:00",
            "comments": "Twins",
            "notes": "Late arrival\nCurrency: EUR\nPayment transaction: tx-1",
            "price": 450.35,
            "custom10": FULL.reference,
            "actions": {"checkAvailability": True},
        }
    ]


async def test_several_bookings_are_one_request_in_their_order() -> None:
    vendor = Vendor(posted(made(81), made(82), made(83)))
    outcomes = await create_many(vendor, [booking(number) for number in (1, 2, 3)])
    assert outcomes == [
        Confirmed("81", {}),
        Confirmed("82", {}),
        Confirmed("83", {}),
    ]
    assert [item["roomId"] for item in vendor.sent()] == [5001, 5002, 5003]
    assert [item["custom10"] for item in vendor.sent()] == [booking(number).reference for number in (1, 2, 3)]


async def test_every_request_is_one_that_the_vendor_describes() -> None:
    contract = open_api()
    vendor = Vendor(
        token(),
        posted(made(81), made(82)),
        listing(more=True),
        listing(a_booking()),
        posted(no("id", "booking not found")),
        listing(a_booking(status="cancelled")),
    )
    async with connected(vendor) as pms:
        await pms.create_many([FULL, booking(2, guest={"name": "Maria", "address": {"country": "Spain"}})])
        assert isinstance(await pms.find(booking()), Confirmed)
        assert await pms.cancel(booking(), "81") == Cancelled()
    assert len(vendor.requests) == 6
    for request in vendor.requests:
        contract.check_request(request)


async def test_the_check_against_the_vendors_document_can_fail() -> None:
    contract = open_api()
    request = httpx.Request(
        "POST", f"{BASE_URL}/bookings", json=[{"roomId": 1, "arrival": "2027-03-01", "apiRef": "x"}]
    )
    with pytest.raises(Exception, match=r"apiRef|departure"):
        contract.check_request(request)
    with pytest.raises(AssertionError, match="reference"):
        contract.check_request(httpx.Request("GET", f"{BASE_URL}/bookings?reference=x"))


async def test_a_card_is_not_part_of_this_wire() -> None:
    vendor = Vendor(posted(made()))
    await create(vendor, FULL)
    assert b"4111" not in vendor.requests[0].content
    assert b"8264" not in vendor.requests[0].content


@for_each(
    ("guest", "sent"),
    [
        ({"name": "Maria del Mar"}, {"firstName": "Maria", "lastName": "del Mar"}),
        ({"name": "Maria"}, {"firstName": "Maria"}),
        ({"email": f"{'m' * 95}@x.example"}, {}),
        ({"lastName": "G" * 120}, {"lastName": "G" * 96 + " […]"}),
        ({"address": {"country": "Hispania", "line1": "A", "line2": "B"}}, {"country": "Hispania", "address": "A, B"}),
        ({}, {}),
    ],
)
async def test_a_guest_is_sent_as_far_as_beds24_takes_it(guest: dict[str, Any], sent: dict[str, Any]) -> None:
    vendor = Vendor(posted(made()))
    await create(vendor, booking(guest=guest))
    fields = {"firstName", "lastName", "email", "phone", "address", "city", "state", "postcode", "country", "country2"}
    assert {name: value for name, value in vendor.sent()[0].items() if name in fields} == sent


async def test_texts_are_cut_where_beds24_would_refuse_them() -> None:
    vendor = Vendor(posted(made()))
    await create(vendor, booking(notes="n" * 3000, comments="c" * 3000))
    assert (len(vendor.sent()[0]["notes"]), len(vendor.sent()[0]["comments"])) == (2000, 1000)


@for_each(
    ("counts", "sent"),
    [
        ({"numberOfAdults": 2, "numberOfChildren": 1, "numberOfInfants": 1}, {"numAdult": 2, "numChild": 2}),
        ({"numberOfGuests": 4, "numberOfChildren": 1, "numberOfInfants": 1}, {"numAdult": 2, "numChild": 2}),
        ({"numberOfGuests": 1, "numberOfChildren": 3}, {"numAdult": 0, "numChild": 3}),
        ({"numberOfGuests": 2, "numberOfChildren": None}, {"numAdult": 2}),
        ({"numberOfGuests": None, "numberOfChildren": None}, {}),
    ],
)
async def test_people_are_adults_or_children(counts: dict[str, Any], sent: dict[str, int]) -> None:
    vendor = Vendor(posted(made()))
    await create(vendor, booking(**counts))
    assert {name: value for name, value in vendor.sent()[0].items() if name.startswith("num")} == sent


@for_each("price", [0.1, 0.07, 7, 99999999.99, 0])
async def test_a_price_is_the_number_that_was_asked(price: float) -> None:
    vendor = Vendor(posted(made()))
    await create(vendor, booking(totalPrice=price))
    assert vendor.sent()[0]["price"] == price


@for_each("room", ["unknown", "..", "12a", "0", "-1", "\u0661\u0662", "9" * 19])
async def test_of_a_room_without_a_number_nothing_is_sent(room: str) -> None:
    vendor = Vendor()
    outcome = await create(vendor, booking(roomId=room))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "room_not_found"
    assert vendor.requests == []


async def test_where_the_property_stands_for_the_room_it_is_the_property_that_is_not_known() -> None:
    outcome = await create(Vendor(), booking(propertyId="unknown", roomId="unknown"))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "property_not_found"


async def test_a_room_without_a_number_does_not_hold_up_the_others() -> None:
    vendor = Vendor(posted(made(81), made(83)))
    outcomes = await create_many(vendor, [booking(1), booking(2, roomId="unknown"), booking(3)])
    assert [type(outcome) for outcome in outcomes] == [Confirmed, Rejected, Confirmed]
    assert [item["roomId"] for item in vendor.sent()] == [5001, 5003]
    last = outcomes[2]
    assert isinstance(last, Confirmed)
    assert last.pms_reservation_id == "83"


async def test_the_day_of_arrival_is_searched_in_every_room_and_status() -> None:
    vendor = Vendor(*[listing(more=True), listing()] * 2)  # read twice: it must not have changed
    await found(vendor)
    first, second, *_ = (request.url.params for request in vendor.requests)
    assert first.multi_items() == [("arrival", "2027-03-01"), *(("status", status) for status in STATUSES)]
    assert second.multi_items() == [*first.multi_items(), ("page", "2")]


async def test_a_cancellation_keeps_the_booking() -> None:
    vendor = Vendor(posted({"success": True, "modified": {"id": 81}}))
    assert await cancelled(vendor) == Cancelled()
    assert vendor.asked == ["POST /v2/bookings"]
    assert vendor.sent() == [{"id": 81, "status": "cancelled"}]


async def test_the_field_of_our_reference_is_an_option() -> None:
    vendor = Vendor(posted(made()), listing(a_booking(custom10=booking().reference, custom3="another's")))
    async with connected(vendor, credentialType="token", referenceField="custom3") as pms:
        await pms.create(booking())
        assert not isinstance(await pms.find(booking()), Confirmed)
    assert vendor.sent(0)[0]["custom3"] == booking().reference
    assert "custom10" not in vendor.sent(0)[0]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"referenceField": "notes"}, "referenceField"), ({"credentialType": "key"}, "credentialType"), ({"x": 1}, "x")],
)
def test_options_that_are_none(options: dict[str, Any], named: str) -> None:
    with pytest.raises(BadOptions, match=named):
        check_options("beds24", options)


async def test_a_token_is_asked_for_once_and_used_until_it_ends() -> None:
    clock = ManualClock(NOW)
    vendor = Vendor(token("access-1"), posted(made(81)), posted(made(82)), token("access-2"), posted(made(83)))
    async with connected(vendor, clock) as pms:
        await pms.create(booking(1))
        await pms.create(booking(2))
        await clock.advance(timedelta(hours=24).total_seconds() - 30)
        await pms.create(booking(3))
    asked, first, second, again, third = vendor.requests
    assert (asked.headers["refreshToken"], again.headers["refreshToken"]) == ("refresh-7", "refresh-7")
    assert "token" not in asked.headers
    assert [request.headers["token"] for request in (first, second, third)] == ["access-1", "access-1", "access-2"]
    assert not [request for request in vendor.requests if "authorization" in request.headers]


async def test_a_token_that_is_refused_is_renewed_once() -> None:
    refused = {"success": False, "type": "error", "code": 401, "error": "Token not valid"}
    vendor = Vendor(token("access-1"), answered(401, refused), token("access-2"), posted(made()))
    async with connected(vendor) as pms:
        assert isinstance(await pms.create(booking()), Confirmed)
    assert vendor.requests[3].headers["token"] == "access-2"
    vendor = Vendor(token("access-1"), answered(401, refused), token("access-2"), answered(401, refused))
    async with connected(vendor) as pms:
        outcome = await pms.create(booking())
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_unauthorized"


@for_each(
    ("reply", "reason", "wait"),
    [
        (answered(400, {"success": False, "type": "error", "code": 400, "error": "bad"}), "pms_unauthorized", None),
        (answered(401, b""), "pms_unauthorized", None),
        (answered(403, b""), "pms_unauthorized", None),
        (answered(404, b""), "pms_refused_request", None),
        (
            answered(429, b"", {"x-five-min-limit-remaining": "0.2", "x-five-min-limit-resets-in": "77"}),
            "pms_throttled",
            77.0,
        ),
        (answered(503, b"", {"Retry-After": "9"}), "pms_unavailable", 9.0),
        (answered(500, b""), "pms_failed", None),
        (answered(200, b"<html>"), "pms_answer_not_understood", None),
        (answered(200, {"token": ""}), "pms_answer_not_understood", None),
        (httpx.ReadTimeout("late"), "pms_timed_out", None),
        (httpx.ReadError("reset"), "pms_connection_lost", None),
    ],
)
async def test_without_a_token_nothing_is_in_doubt(
    reply: httpx.Response | httpx.HTTPError, reason: str, wait: float | None
) -> None:
    vendor = Vendor(reply)
    async with connected(vendor) as pms:
        [outcome, _] = await pms.create_many([booking(1), booking(2)])
    assert isinstance(outcome, Deferred)
    assert (outcome.reason, outcome.retry_after_seconds) == (reason, wait)
    assert vendor.asked == ["GET /v2/authentication/token"]


@for_each("length", [1, 1900, 1995, 2000, 2001, 10_000])
async def test_what_has_no_field_is_in_the_notes_however_long_they_are(length: int) -> None:
    vendor = Vendor(posted(made()))
    await create(
        vendor, booking(notes="n" * length, comments="c" * length, numberOfPets=2, paymentProviderKey="k" * 99)
    )
    [sent] = vendor.sent()
    below = f"\nPets: 2\nCurrency: EUR\nPayment provider key: {'k' * 99}"
    assert sent["notes"].endswith(below)
    assert len(sent["notes"]) == min(length + len(below), 2000)
    assert (" […]" in sent["notes"]) == (length + len(below) > 2000)
    assert len(sent["comments"]) == min(length, 1000)
    assert sent["comments"].endswith(" […]") == (length > 1000)


async def test_lines_that_are_too_long_themselves_are_cut() -> None:
    vendor = Vendor(posted(made()))
    await create(vendor, booking(notes="n" * 50, paymentProviderKey="k" * 5000))
    assert len(vendor.sent()[0]["notes"]) <= 2000
    assert " […]" in vendor.sent()[0]["notes"]
