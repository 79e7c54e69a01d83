"""Hostaway: what each answer means."""

from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from tests.support.cases import for_each
from tests.support.pms.dialogue import Reply, Vendor, answered
from tests.support.pms.kinds.hostaway import a_reservation, cancelled, create, fail, found, listing, success
from tests.support.simulator.server import CARD, booking

BARE: dict[str, Any] = {"finances": {}}
OTHER = {"id": 7, "status": "new", "customerUserId": None}


def _field(of_type: str, title: str, total: object, **more: Any) -> dict[str, Any]:
    return {"type": of_type, "name": title.lower(), "title": title, "total": total, "isDeleted": 0} | more


async def test_the_answer_gets_into_the_record() -> None:
    shown = a_reservation(
        totalPrice=0.3,
        remainingBalance=0.2,
        currency="EUR",
        hostNote="Late arrival",
        doorCode="12#",
        financeField=[
            _field("price", "Base rate", 0.15),
            _field("fee", "Cleaning", 0.1),
            _field("fee", "Pets", 0.2, isIncludedInTotalPrice=1),
            _field("fee", "Not counted", 5, isIncludedInTotalPrice=0),
            _field("fee", "Deleted", 5, isDeleted=1),
            _field("tax", "VAT", 0.05),
            _field("tax", "City tax", "a lot"),
            "what?",
        ],
    )
    assert await create(Vendor(success(shown)), booking(totalPrice=0.3)) == Confirmed(
        "81",
        {
            "totalPrice": 0.3,
            "currency": "EUR",
            "notes": "Late arrival",
            "codes": {"accessCode": ["12#"]},
            "finances": {
                "totalPrice": 0.3,
                "currency": "EUR",
                "totalPaid": 0.1,
                "remainingBalance": 0.2,
                "fee": {
                    "totalFee": 0.3,
                    "breakdown": [
                        {"name": "Cleaning", "type": "Fee", "total": 0.1},
                        {"name": "Pets", "type": "Fee", "total": 0.2},
                    ],
                },
                "tax": {"totalTax": 0.05, "breakdown": [{"name": "VAT", "type": "Tax", "total": 0.05}]},
            },
        },
    )


@pytest.mark.parametrize("price", ["a lot", True, [], None])
async def test_what_is_no_amount_is_left_out(price: object) -> None:
    assert await create(Vendor(success(a_reservation(totalPrice=price)))) == Confirmed("81", BARE)


async def test_a_card_that_the_answer_repeats_is_masked() -> None:
    shown = a_reservation(hostNote="paid with 4111 1111 1111 1111")
    outcome = await create(Vendor(success(shown)), booking(card=CARD))
    assert outcome == Confirmed("81", {"notes": "paid with 411111******1111", "finances": {}})


@pytest.mark.parametrize("shown", [{"id": 81}, {"id": 81, "status": "modified"}, {"id": 81, "customerUserId": None}])
async def test_a_reservation_is_made_as_soon_as_it_has_an_id(shown: dict[str, Any]) -> None:
    assert await create(Vendor(success(shown))) == Confirmed("81", BARE)


async def test_a_reservation_that_is_cancelled_from_the_start_is_refused() -> None:
    outcome = await create(Vendor(success(a_reservation(status="cancelled"))))
    assert isinstance(outcome, Rejected)


@for_each("status", [200, 400, 409, 422])
@for_each("within", ["result", "message"])
@for_each(
    ("words", "code"),
    [
        ("Listing is not available for these dates", "room_unavailable"),
        ("Overbooking: dates are already reserved", "room_unavailable"),
        ("Calendar is blocked", "room_unavailable"),
        ("Listing not found", "property_not_found"),
        ("listingMapId is required", "property_not_found"),
        ("guestEmail is not valid", "guest_refused"),
        ("phone is too long", "guest_refused"),
        ("numberOfGuests exceeds the listing's capacity", "pms_refused"),
        ("channelId is required", "pms_refused"),
        ("Total price mismatch", "price_changed"),
        ("The guest's credit card was declined", "card_refused"),
    ],
)
async def test_what_a_failure_says(words: str, code: str, within: str, status: int) -> None:
    outcome = await create(Vendor(fail(words, status, within=within)))
    assert isinstance(outcome, Rejected)
    assert (outcome.problem.code, outcome.problem.status, outcome.problem.detail) == (code, 409, words)


async def test_a_404_speaks_of_the_listing_only_where_it_says_so() -> None:
    outcome = await create(Vendor(fail("Listing not found", 404)))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "property_not_found"
    outcome = await create(Vendor(fail("Resource not found", 404, within="message")))
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_refused_request"


@for_each(
    ("reply", "kind", "reason"),
    [
        (fail("Access token is not valid"), Deferred, "pms_unauthorized"),
        (fail("You have exceeded the rate limits", within="message"), Deferred, "pms_throttled"),
        (fail("Internal error"), InDoubt, "pms_failed"),
        (fail("Something went wrong, please try again"), InDoubt, "pms_failed"),
        (fail(""), InDoubt, "pms_failed"),
        (fail(None), InDoubt, "pms_failed"),
        (fail({"totalPrice": "wrong"}), InDoubt, "pms_failed"),
        (fail("Listing is not available", 500), InDoubt, "pms_failed"),
        (fail("exceeded", 429, within="message"), Deferred, "pms_throttled"),
        (fail("Access denied", 403), Deferred, "pms_unauthorized"),
        (success(a_reservation(status="awaitingPayment")), InDoubt, "pms_answer_not_understood"),
        (success(a_reservation(status=1)), InDoubt, "pms_answer_not_understood"),
        (success(a_reservation(customerUserId="another's")), InDoubt, "pms_answer_not_understood"),
        (success(a_reservation(id=True)), InDoubt, "pms_answer_not_understood"),
        (success({}), InDoubt, "pms_answer_not_understood"),
        (success([]), InDoubt, "pms_answer_not_understood"),
        (success(None), InDoubt, "pms_answer_not_understood"),
        (answered(500, {"status": "success", "result": {"id": 81}}), InDoubt, "pms_answer_not_understood"),
        (answered(200, {"status": "maybe", "result": {"id": 81}}), InDoubt, "pms_answer_not_understood"),
        (answered(200, [81]), InDoubt, "pms_answer_not_understood"),
        (answered(200, b"<html>"), InDoubt, "pms_answer_not_understood"),
        (answered(400, b"<html>"), Deferred, "pms_refused_request"),
        (answered(302, b""), InDoubt, "pms_redirected"),
        (answered(502, b""), InDoubt, "pms_failed"),
        (answered(503, b""), InDoubt, "pms_unavailable"),
        (answered(503, {"status": "fail", "message": "no"}), InDoubt, "pms_unavailable"),
        (httpx.ReadTimeout("late"), InDoubt, "pms_timed_out"),
        (httpx.ReadError("reset"), InDoubt, "pms_connection_lost"),
    ],
)
async def test_what_other_answers_mean(reply: Reply, kind: type, reason: str) -> None:
    outcome = await create(Vendor(reply))
    assert type(outcome) is kind
    assert isinstance(outcome, Deferred | InDoubt)
    assert outcome.reason == reason


@pytest.mark.parametrize(("status", "reason"), [(429, "pms_throttled"), (503, "pms_unavailable")])
async def test_the_pms_says_when_to_come_again(status: int, reason: str) -> None:
    outcome = await create(Vendor(answered(status, {"status": "fail"}, {"Retry-After": "9"})))
    assert isinstance(outcome, Deferred if status == 429 else InDoubt)
    assert (outcome.reason, outcome.retry_after_seconds) == (reason, 9.0)


async def test_a_reservation_is_found_by_its_reference() -> None:
    assert await found(Vendor(listing(OTHER, a_reservation()))) == Confirmed("81", BARE)
    assert await found(Vendor(listing(OTHER, a_reservation(customerUserId="another's")))) == Absent()
    assert await found(Vendor(listing())) == Absent()


@pytest.mark.parametrize(("count", "end"), [("many", Absent), (True, Absent), (99, Deferred)])
async def test_where_the_count_does_not_end_the_list_an_empty_page_does_unless_more_were_counted(
    count: object, end: type
) -> None:
    pages = [listing(OTHER, count=count), listing(OTHER | {"id": 8}, count=1), listing(count=0)]
    vendor = Vendor(*pages * 2)  # read twice: it must not have changed
    assert isinstance(await found(vendor), end)
    asked = [request.url.params.get("afterId") for request in vendor.requests]
    assert asked == [None, "7", "8"] * (2 if end is Absent else 1)


async def test_one_that_is_held_comes_before_one_that_was_cancelled() -> None:
    lookup = await found(Vendor(listing(a_reservation(id=80, status="cancelled"), a_reservation(status="modified"))))
    assert lookup == Confirmed("81", BARE)


@for_each(
    ("replies", "reason"),
    [
        ([listing(a_reservation(status="cancelled"))], "cancelled_in_pms"),
        ([listing(a_reservation(status="inquiry"))], "pms_still_working"),
        ([listing({"id": 7, "status": "new"})], "pms_scope_too_small"),
        ([listing({**OTHER, "id": 100 + number}, count=9999) for number in range(20)], "pms_lists_too_much"),
        ([listing({"status": "new", "customerUserId": None})], "pms_answer_not_understood"),
        ([listing("what?")], "pms_answer_not_understood"),
        ([success({})], "pms_answer_not_understood"),
        ([answered(200, b"<html>")], "pms_answer_not_understood"),
        ([fail("Listing not found")], "pms_refused_request"),
        ([fail("Internal error")], "pms_failed"),
        ([fail("exceeded", 429)], "pms_throttled"),
        ([fail("Access denied", 403)], "pms_unauthorized"),
        ([answered(500, b"")], "pms_failed"),
        ([httpx.ReadTimeout("late")], "pms_timed_out"),
    ],
)
async def test_a_look_up_that_decides_nothing(replies: list[Reply], reason: str) -> None:
    lookup = await found(Vendor(*replies))
    assert isinstance(lookup, Deferred)
    assert lookup.reason == reason


@pytest.mark.parametrize(
    "replies",
    [
        [success(a_reservation(status="cancelled"))],
        [fail("Reservation is already cancelled"), success(a_reservation(status="cancelled"))],
        [fail("Internal error"), success(a_reservation(status="cancelled"))],
        [fail("Resource not found", 404), fail("Resource not found", 404), listing(OTHER)],
    ],
)
async def test_a_reservation_that_is_cancelled_is_gone(replies: list[Reply]) -> None:
    vendor = Vendor(*replies)
    assert await cancelled(vendor) == Cancelled()
    assert len(vendor.requests) == len(replies)


async def test_a_refused_cancellation() -> None:
    cancellation = await cancelled(Vendor(fail("It is too late to cancel"), success(a_reservation())))
    assert isinstance(cancellation, Rejected)
    assert (cancellation.problem.code, cancellation.problem.detail) == (
        "cancellation_refused",
        "It is too late to cancel",
    )


NOT_THERE = fail("Resource not found", 404)


@for_each(
    ("replies", "reason"),
    [
        ([success(a_reservation())], "pms_answer_not_understood"),
        ([success([])], "pms_answer_not_understood"),
        ([NOT_THERE, NOT_THERE, NOT_THERE], "pms_refused_request"),
        ([NOT_THERE, NOT_THERE, answered(200, b"<html>")], "pms_answer_not_understood"),
        ([NOT_THERE, NOT_THERE, success({})], "pms_answer_not_understood"),
        ([NOT_THERE, answered(404, b"<html>")], "pms_refused_request"),
        ([NOT_THERE, answered(500, b"")], "pms_failed"),
        ([NOT_THERE, httpx.ReadTimeout("late")], "pms_timed_out"),
        ([fail("Internal error"), success(a_reservation())], "pms_failed"),
        ([fail("It is too late to cancel"), success([])], "pms_refused_request"),
        ([fail("It is too late to cancel"), success(None)], "pms_refused_request"),
        ([answered(404, b"<html>")], "pms_refused_request"),
        ([fail("no", 500)], "pms_failed"),
        ([fail("exceeded", 429)], "pms_throttled"),
        ([fail("Access denied", 403)], "pms_unauthorized"),
        ([httpx.ReadTimeout("late")], "pms_timed_out"),
    ],
)
async def test_a_cancellation_may_be_asked_for_again(replies: list[Reply], reason: str) -> None:
    cancellation = await cancelled(Vendor(*replies))
    assert isinstance(cancellation, Deferred)
    assert cancellation.reason == reason
