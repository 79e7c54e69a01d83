"""BookingSync: what each answer means."""

from dataclasses import replace

import httpx
import pytest

from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.booking_sync import (
    NOW,
    Vendor,
    a_booking,
    answered,
    asked_for,
    booked,
    cancel,
    connected,
    find,
    listing,
)
from tests.support.simulator.server import booking


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


async def test_fees_taxes_and_the_discount_are_lines() -> None:
    made = a_booking(
        initial_rental_price="300.0",
        final_rental_price="270.0",
        final_price="410.30",
        currency="EUR",
        bookings_fees=[
            {
                "name": {"fr": "Ménage", "en": "Cleaning"},
                "price": "50.15",
                "times_booked": 2,
                "included_in_price": True,
            },
            {"name": {"en": "Included"}, "price": "5.0", "times_booked": 1, "included_in_price": False},
            {"name": {"en": "Withdrawn"}, "price": "5.0", "times_booked": 1, "canceled_at": "2027-01-01T00:00:00Z"},
        ],
        bookings_taxes=[
            {"name": {"fr": "Taxe de séjour"}, "amount": "40.0", "tax_included_in_price": False},
            {"name": {"en": "VAT"}, "amount": "9.0", "tax_included_in_price": True},
            {"name": {"en": "Odd"}, "amount": 5},
        ],
    )
    outcome = await booked(201, {"bookings": [made]})
    assert isinstance(outcome, Confirmed)
    assert outcome.record["finances"] == {
        "totalPrice": 410.3,
        "currency": "EUR",
        "basePrice": {
            "totalBasePrice": 300,
            "breakdown": [{"name": "Room rate", "type": "RoomRate", "total": 300}],
        },
        "fee": {"totalFee": 100.3, "breakdown": [{"name": "Cleaning", "type": "Fee", "total": 100.3}]},
        "tax": {"totalTax": 40, "breakdown": [{"name": "Taxe de séjour", "type": "Tax", "total": 40}]},
        "discount": {"totalDiscount": 30, "breakdown": [{"name": "Discount", "type": "Discount", "total": 30}]},
    }


@for_each("odd", [5, {}, [5], [{}], [{"name": 5, "price": "x", "times_booked": 1}]])
async def test_lines_that_are_none_are_left_out(odd: object) -> None:
    outcome = await booked(201, {"bookings": [a_booking(bookings_fees=odd, bookings_taxes=odd)]})
    assert outcome == Confirmed("5", {"finances": {}})


@for_each("text", ["a lot", "NaN", "Infinity", "1e400", 5, None, True, ""])
async def test_what_is_no_decimal_amount_is_left_out(text: object) -> None:
    outcome = await booked(201, {"bookings": [a_booking(final_price=text)]})
    assert outcome == Confirmed("5", {"finances": {}})


@for_each(
    ("errors", "code"),
    [
        ({"start_at": ["is not available"]}, "room_unavailable"),
        ({"base": ["Rental is already booked for this period"]}, "room_unavailable"),
        ({"end_at": ["overlaps with another booking"]}, "room_unavailable"),
        ({"start_at": ["can't be blank"]}, "pms_refused"),
        ({"base": ["final price is missing"]}, "pms_refused"),
        ({"final_price": ["does not match the rental's"]}, "price_changed"),
        ({"base": ["The card was declined"]}, "card_refused"),
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
    assert outcome.problem.detail == "start_at (arrivalDate): is not available, is past; base: […] is barred"


async def test_an_unknown_rental() -> None:
    outcome = await booked(404, {"error": "Not found"})
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "property_not_found"


@for_each(
    ("status", "body", "kind", "reason"),
    [
        (401, {"error": "Not authorized"}, Deferred, "pms_unauthorized"),
        (429, {"error": "API v3 rate limit exceeded."}, Deferred, "pms_throttled"),
        (302, b"", InDoubt, "pms_redirected"),
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


async def test_a_gateway_that_names_a_time_may_have_passed_the_booking_on() -> None:
    outcome = await booked(503, b"", {"Retry-After": "9"})
    assert isinstance(outcome, InDoubt)
    assert outcome.retry_after_seconds == 9.0


async def test_a_booking_that_is_cancelled_from_the_start_is_refused() -> None:
    outcome = await booked(201, {"bookings": [a_booking(status="Canceled")]})
    assert isinstance(outcome, Rejected)


@for_each(
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
    outcome = await booked(429, b"", headers)
    assert isinstance(outcome, Deferred)
    assert outcome.retry_after_seconds == seconds


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
    other, third = ([a_booking(id=number, external_reference="other")] for number in (6, 7))
    lookup, requests = await find(listing(other, pages=3), listing(third, pages=3), listing([a_booking()], pages=3))
    assert isinstance(lookup, Confirmed)
    assert [request.url.params["page"] for request in requests] == ["1", "2", "3"]
    twice = [listing(other, pages=2), listing(third, pages=2)] * 2  # it must not have changed
    assert (await find(*twice))[0] == Absent()
    assert isinstance((await find(*[listing(other, pages=2)] * 2))[0], Deferred)  # the number of the page is overlooked
    assert (await find(listing([])))[0] == Absent()


async def test_the_id_that_a_create_was_answered_with_is_not_ours_where_it_carries_anothers_reference() -> None:
    for reference, expected in ((f"rsv_{'b' * 32}", Absent), (None, Confirmed)):
        vendor = Vendor(*[listing([a_booking(external_reference=reference)])] * 2)
        async with connected(vendor) as pms:
            assert isinstance(await pms.find(replace(booking(), pms_id="5")), expected), reference


async def test_a_page_that_is_empty_before_the_last_proves_nothing() -> None:
    failed = answered(200, {"bookings": [], "errors": [{"title": "timed out"}]}, {"X-Total-Pages": "1"})
    for answers in ([listing([a_booking(external_reference="other")], pages=3), listing([], pages=3)], [failed]):
        lookup, _ = await find(*answers)
        assert isinstance(lookup, Deferred)
        assert lookup.reason == "pms_answer_not_understood"


async def test_where_no_count_of_pages_is_given_an_empty_page_ends_the_list() -> None:
    other = [a_booking(external_reference="other")]
    lookup, requests = await find(*[listing(other, pages=None), listing([], pages=None)] * 2)
    assert lookup == Absent()
    assert len(requests) == 4


async def test_a_list_without_end_decides_nothing() -> None:
    other = [a_booking(external_reference="other")]
    lookup, _ = await find(*(listing(other, pages=99) for _ in range(20)))
    assert isinstance(lookup, Deferred)


@pytest.mark.parametrize("answer", [answered(200, b"<html>"), answered(200, {"bookings": 5}), httpx.Response(500)])
async def test_a_list_that_is_none_decides_nothing(answer: httpx.Response) -> None:
    assert isinstance((await find(answer))[0], Deferred)


async def test_what_was_cancelled_since_is_neither_booked_again_nor_confirmed() -> None:
    lookup, _ = await find(listing([a_booking(status="Canceled")]))
    assert isinstance(lookup, Deferred)
    assert lookup.reason == "cancelled_in_pms"


async def test_what_is_held_and_not_booked_is_neither() -> None:
    lookup, _ = await find(listing([a_booking(status="Tentative", booked=False)]))
    assert isinstance(lookup, Deferred)
    assert lookup.reason == "pms_still_working"


@pytest.mark.parametrize(
    ("links", "absent"), [({"payments": []}, True), ({"payments": [23]}, False), ({}, False), (None, False)]
)
async def test_what_was_held_and_ended_counts_only_if_nobody_began_to_pay(links: object, *, absent: bool) -> None:
    ended = a_booking(status="Canceled", booked=False, links=links)
    lookup, _ = await find(listing([ended]))
    assert isinstance(lookup, Absent if absent else Deferred)
    assert isinstance((await find(listing([ended, a_booking(id=6)])))[0], Confirmed)


async def test_the_account_may_lack_a_scope() -> None:
    outcome = await booked(403, {"error": "Forbidden"})
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_scope_too_small"
    assert (await find(answered(403, b"")))[0] == outcome


async def test_an_answer_about_another_booking_is_not_understood() -> None:
    outcome = await booked(201, {"bookings": [a_booking(external_reference="other")]})
    assert isinstance(outcome, InDoubt)


NOT_FOUND = answered(404, {"error": "Not found"})


async def test_a_cancelled_booking_is_gone() -> None:
    cancellation, requests = await cancel(httpx.Response(204))
    assert cancellation == Cancelled()
    assert asked_for(requests) == [("DELETE", "/bookings/840043")]


async def test_a_booking_that_is_not_there_is_looked_at_before_it_counts_as_gone() -> None:
    shown = answered(200, {"bookings": [a_booking(id=840043, status="Canceled")]})
    cancellation, requests = await cancel(NOT_FOUND, shown)
    assert cancellation == Cancelled()
    assert asked_for(requests)[1:] == [("GET", "/bookings/840043")]
    assert requests[1].url.params["include_canceled"] == "true"


async def test_a_booking_that_nobody_knows_is_gone_where_its_rental_is_known() -> None:
    cancellation, requests = await cancel(NOT_FOUND, NOT_FOUND, answered(200, {"rentals": [{"id": 5001}]}))
    assert cancellation == Cancelled()
    assert asked_for(requests)[2:] == [("GET", "/rentals/5001")]


@for_each(
    "answers",
    [
        (NOT_FOUND, NOT_FOUND),  # a wrong base URL, or another account's credential
        (NOT_FOUND, answered(200, {"rentals": [{"id": 7}]})),
        (NOT_FOUND, answered(200, b"<html>")),
        (NOT_FOUND, httpx.ReadTimeout("late")),
        (answered(200, {"bookings": [a_booking(id=840043)]}),),
        (answered(200, {"bookings": [a_booking(id=840044, status="Canceled")]}),),
        (answered(200, b"<html>"),),
        (httpx.Response(500),),
    ],
)
async def test_a_404_alone_cancels_nothing(answers: tuple[httpx.Response | httpx.HTTPError, ...]) -> None:
    assert isinstance((await cancel(NOT_FOUND, *answers))[0], Deferred)


@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.Response(401), httpx.Response(403), httpx.ReadTimeout("late")]
)
async def test_a_cancellation_may_be_asked_for_again(answer: httpx.Response | httpx.HTTPError) -> None:
    assert isinstance((await cancel(answer))[0], Deferred)


async def test_a_cancellation_may_be_refused() -> None:
    refused, _ = await cancel(answered(422, {"errors": {"base": ["is locked by another application"]}}))
    assert isinstance(refused, Rejected)
    assert refused.problem.code == "cancellation_refused"
    assert refused.problem.detail == "base: is locked by another application"


@for_each("pms_id", ["00I06J", "", "..", "1/2", "-1"])
async def test_an_id_that_is_none_of_the_vendors_is_not_asked_for(pms_id: str) -> None:
    refused, requests = await cancel(pms_id=pms_id)
    assert isinstance(refused, Rejected)
    assert refused.problem.code == "cancellation_refused"
    assert requests == []


async def test_words_about_the_server_are_no_refusal() -> None:
    outcome = await booked(422, {"errors": {"base": ["The service is unavailable, try again later"]}})
    assert isinstance(outcome, InDoubt)
    assert isinstance(await booked(422, {"errors": {"base": ["is not available"]}}), Rejected)
