"""Beds24: what each answer means."""

from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from tests.support.cases import for_each
from tests.support.pms.dialogue import Reply, Vendor, answered
from tests.support.pms.kinds.beds24 import a_booking, cancelled, create, create_many, found, listing, made, no, posted
from tests.support.simulator.server import booking

ERROR = {"success": False, "type": "error", "code": 500, "error": "oops"}


PRICED = booking(totalPrice=0.3)


async def test_what_is_shown_of_a_new_booking_gets_into_the_record() -> None:
    outcome = await create(Vendor(posted(made(81, status="new", price=0.3, tax=0.1, notes="Sea view"))), PRICED)
    tax = {"totalTax": 0.1, "breakdown": [{"name": "Taxes", "type": "Tax", "total": 0.1}]}
    record = {"totalPrice": 0.3, "notes": "Sea view", "finances": {"totalPrice": 0.3, "tax": tax}}
    assert outcome == Confirmed("81", record)


@for_each("price", ["a lot", True, [], {}, 1e300, None])
async def test_what_is_no_amount_is_left_out(price: object) -> None:
    assert await create(Vendor(posted(made(81, price=price)))) == Confirmed("81", {})


@for_each(
    ("faults", "code"),
    [
        ([("roomId", "no availability")], "room_unavailable"),
        ([("", "Room not available for these dates")], "room_unavailable"),
        ([("arrival", "overlaps with booking 7")], "room_unavailable"),
        ([("roomId", "roomId is invalid")], "room_not_found"),
        ([("unitId", "unit does not exist")], "room_not_found"),
        ([("email", "invalid email")], "guest_refused"),
        ([("lastName", "too long")], "guest_refused"),
        ([("price", "must be a number")], "pms_refused"),
        ([("price", "The price has changed")], "price_changed"),
        ([("", "the card was declined")], "card_refused"),
        ([("", "")], "pms_refused"),
        ([("price", "must be a number"), ("roomId", "no availability")], "room_unavailable"),
    ],
)
async def test_what_an_items_errors_say(faults: list[tuple[str, str]], code: str) -> None:
    errors = [{"action": "new booking", "field": field, "message": message} for field, message in faults]
    outcome = await create(Vendor(posted({"success": False, "errors": errors})), booking(roomId=7))
    assert isinstance(outcome, Rejected)
    assert (outcome.problem.code, outcome.problem.status) == (code, 409)


async def test_the_property_is_not_known_where_it_stands_for_the_room() -> None:
    outcome = await create(Vendor(posted(no("roomId", "roomId is invalid"))))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "property_not_found"


async def test_the_vendors_words_are_passed_on() -> None:
    item = {"success": False, "errors": [{"field": "email", "message": "Maria is barred"}, {"message": "sorry"}]}
    outcome = await create(Vendor(posted(item)))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.detail == "email (guest.email): […] is barred; sorry"


@for_each(
    ("message", "kind", "reason"),
    [
        ("token does not have scope write:bookings", Deferred, "pms_unauthorized"),
        ("no write access to this property", Deferred, "pms_unauthorized"),
        ("Credit limit exceeded", Deferred, "pms_throttled"),
        ("Internal error", InDoubt, "pms_failed"),
        ("Service temporarily unavailable", InDoubt, "pms_failed"),
        ("Something unexpected happened, try again later", InDoubt, "pms_failed"),
    ],
)
async def test_errors_that_do_not_speak_of_the_booking(message: str, kind: type, reason: str) -> None:
    outcome = await create(Vendor(posted(no("", message))))
    assert type(outcome) is kind
    assert isinstance(outcome, Deferred | InDoubt)
    assert outcome.reason == reason


@pytest.mark.parametrize(
    "item",
    [
        {"success": False, "new": {"id": 81}, "errors": [{"field": "infoItems", "message": "invalid"}]},
        {"success": True, "new": {"id": 81}, "warnings": [{"field": "lang", "message": "invalid"}]},
        {"success": True, "new": {"id": 81}, "errors": None},
    ],
)
async def test_a_booking_that_is_made_counts_whatever_else_failed(item: dict[str, Any]) -> None:
    assert await create(Vendor(posted(item))) == Confirmed("81", {})


@for_each(
    "item",
    [
        {"success": True},
        {"success": True, "new": {}},
        {"success": True, "new": []},
        {"success": True, "new": {"id": "81"}},
        {"success": True, "new": {"id": True}},
        {"success": True, "new": {"id": 0}},
        {"success": True, "new": {"id": 81, "status": "request"}},
        {"success": True, "new": {"id": 81, "custom10": "another's"}},
        {"success": True, "new": {"id": 81, "status": 1}},
        {"success": True, "modified": {"id": 81}},
        {"success": False},
        {"success": False, "errors": []},
        {"success": False, "new": {"id": 81, "status": "request"}, "errors": [{"message": "no availability"}]},
        {"success": "false", "errors": [{"message": "no availability"}]},
        {"success": False, "errors": "no availability"},
        {"errors": [{"message": "no availability"}]},
        None,
        "ok",
        [],
    ],
)
async def test_an_item_of_which_it_is_not_clear_is_in_doubt(item: object) -> None:
    outcome = await create(Vendor(posted(item)))
    assert isinstance(outcome, InDoubt)
    assert outcome.reason == "pms_answer_not_understood"


async def test_each_item_has_its_own_outcome() -> None:
    vendor = Vendor(posted(made(81), no("roomId", "no availability"), "what?", no("", "Internal error"), made(85)))
    outcomes = await create_many(vendor, [booking(number) for number in range(1, 6)])
    assert [type(outcome) for outcome in outcomes] == [Confirmed, Rejected, InDoubt, InDoubt, Confirmed]
    rejected = outcomes[1]
    assert isinstance(rejected, Rejected)
    assert rejected.problem.request_id == booking(2).reference


async def test_one_id_for_two_of_a_batch_is_that_of_neither() -> None:
    outcomes = await create_many(Vendor(posted(made(81), made(81), made(83))), [booking(1), booking(2), booking(3)])
    assert [type(outcome) for outcome in outcomes] == [InDoubt, InDoubt, Confirmed]


@for_each(
    ("reply", "kind", "reason"),
    [
        (posted(made()), InDoubt, "pms_answer_not_understood"),
        (posted(made(), made(82), made(83)), InDoubt, "pms_answer_not_understood"),
        (posted(), InDoubt, "pms_answer_not_understood"),
        (answered(201, {"success": True}), InDoubt, "pms_answer_not_understood"),
        (answered(201, b"[" * 100), InDoubt, "pms_answer_not_understood"),
        (answered(201, b"<html>"), InDoubt, "pms_answer_not_understood"),
        (answered(204, b""), InDoubt, "pms_answer_not_understood"),
        (answered(401, b""), Deferred, "pms_unauthorized"),
        (answered(403, b""), Deferred, "pms_unauthorized"),
        (answered(404, b""), Deferred, "pms_refused_request"),
        (answered(302, b""), InDoubt, "pms_redirected"),
        (answered(500, ERROR), InDoubt, "pms_failed"),
        (answered(502, b""), InDoubt, "pms_failed"),
        (answered(503, b""), InDoubt, "pms_unavailable"),
        (httpx.ReadTimeout("late"), InDoubt, "pms_timed_out"),
        (httpx.ReadError("reset"), InDoubt, "pms_connection_lost"),
        (httpx.UnsupportedProtocol("what?"), Deferred, "pms_address_invalid"),
    ],
)
async def test_what_is_not_said_of_one_item_holds_for_all(reply: Reply, kind: type, reason: str) -> None:
    outcomes = await create_many(Vendor(reply), [booking(1), booking(2)])
    assert len(outcomes) == 2
    for outcome in outcomes:
        assert type(outcome) is kind
        assert isinstance(outcome, Deferred | InDoubt)
        assert outcome.reason == reason


BAD = answered(400, {"success": False, "type": "error", "code": 400, "error": "numAdult is too large"})


async def test_a_batch_that_is_refused_as_a_whole_is_offered_one_by_one() -> None:
    lost, never_sent = httpx.ReadTimeout("late"), httpx.UnsupportedProtocol("what?")
    vendor = Vendor(BAD, posted(made(81)), BAD, lost, never_sent, posted(made(85)))
    outcomes = await create_many(vendor, [booking(number) for number in range(1, 6)])
    assert [type(outcome) for outcome in outcomes] == [Confirmed, Deferred, InDoubt, Deferred, Confirmed]
    assert [len(vendor.sent(number)) for number in range(len(vendor.requests))] == [5, 1, 1, 1, 1, 1]


async def test_a_batch_that_failed_in_words_is_in_doubt_and_not_sent_again() -> None:
    vendor = Vendor(answered(400, {"success": False, "error": "The request timed out"}))
    outcomes = await create_many(vendor, [booking(1), booking(2)])
    assert [type(outcome) for outcome in outcomes] == [InDoubt, InDoubt]


@for_each(
    ("text", "expected"),
    [
        ("Not available, try again with other dates", "room_unavailable"),
        ("Availability service is down", "pms_failed"),
        ("API credits used up: no more are available", "pms_throttled"),
        ("The calendar is not available on your plan", "pms_unauthorized"),
    ],
)
async def test_words_about_the_server_or_the_account_are_no_refusal(text: str, expected: str) -> None:
    outcome = await create(Vendor(posted(no("", text))))
    assert (outcome.problem.code if isinstance(outcome, Rejected) else getattr(outcome, "reason", "")) == expected


async def test_one_that_is_refused_so_alone_is_put_off() -> None:
    outcome = await create(Vendor(BAD))
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_refused_in_words"


@for_each(
    ("status", "headers", "reason", "wait"),
    [
        (429, {"X-FiveMinCreditLimit-Remaining": "0", "X-FiveMinCreditLimit-ResetsIn": "120"}, "pms_throttled", 120.0),
        (429, {"x-five-min-limit-remaining": "0.3", "x-five-min-limit-resets-in": "120"}, "pms_throttled", 120.0),
        (429, {"Retry-After": "60", "x-five-min-limit-resets-in": "120"}, "pms_throttled", 60.0),
        (429, {}, "pms_throttled", None),
        (503, {"Retry-After": "9"}, "pms_unavailable", 9.0),
    ],
)
async def test_the_pms_says_when_to_come_again(
    status: int, headers: dict[str, str], reason: str, wait: float | None
) -> None:
    outcome = await create(Vendor(answered(status, ERROR, headers)))
    assert isinstance(outcome, Deferred if status == 429 else InDoubt)
    assert (outcome.reason, outcome.retry_after_seconds) == (reason, wait)


async def test_a_booking_is_found_by_its_reference() -> None:
    others = (a_booking(id=80, custom10=""), a_booking(id=79, custom10=None), a_booking(id=78, custom10="rsv_other"))
    assert await found(Vendor(listing(*others, a_booking(price=7)))) == Confirmed(
        "81", {"totalPrice": 7, "finances": {"totalPrice": 7}}
    )
    assert await found(Vendor(listing(*others))) == Absent()
    assert await found(Vendor(listing())) == Absent()
    assert isinstance(await found(Vendor(listing(*others, more=True), listing(a_booking()))), Confirmed)


async def test_one_that_is_held_comes_before_one_that_was_cancelled() -> None:
    lookup = await found(Vendor(listing(a_booking(id=80, status="cancelled"), a_booking(id=81, status="new"))))
    assert isinstance(lookup, Confirmed)
    assert lookup.pms_reservation_id == "81"


@for_each(
    ("replies", "reason"),
    [
        ([listing(a_booking(status="cancelled"))], "cancelled_in_pms"),
        ([listing(a_booking(status="request"))], "pms_still_working"),
        ([listing(a_booking(status="cancelled"), a_booking(status="black"))], "pms_still_working"),
        ([listing({"id": 81, "status": "confirmed"})], "pms_scope_too_small"),
        ([listing(more=True)] * 20, "pms_lists_too_much"),
        ([listing({"id": "81", "status": "confirmed", "custom10": ""})], "pms_answer_not_understood"),
        ([listing("what?")], "pms_answer_not_understood"),
        ([answered(200, {"success": True, "data": []})], "pms_answer_not_understood"),
        (
            [answered(200, {"success": False, "pages": {"nextPageExists": False}, "data": []})],
            "pms_answer_not_understood",
        ),
        ([answered(200, {"success": True, "pages": {"nextPageExists": 0}, "data": []})], "pms_answer_not_understood"),
        ([answered(200, b"<html>")], "pms_answer_not_understood"),
        ([answered(500, ERROR)], "pms_failed"),
        ([answered(404, b"")], "pms_refused_request"),
        ([httpx.ReadTimeout("late")], "pms_timed_out"),
    ],
)
async def test_a_look_up_that_decides_nothing(replies: list[Reply], reason: str) -> None:
    lookup = await found(Vendor(*replies))
    assert isinstance(lookup, Deferred)
    assert lookup.reason == reason


@for_each(
    "replies",
    [
        [posted({"success": True, "modified": {"id": 81}})],
        [posted({"success": True}, status=200)],
        [posted(no("status", "already cancelled")), listing(a_booking(status="cancelled"))],
        [posted(no("id", "booking not found")), listing(), listing()],
        [posted({"success": False}), listing(a_booking(status="cancelled"))],
    ],
)
async def test_a_booking_that_is_cancelled_is_gone(replies: list[Reply]) -> None:
    vendor = Vendor(*replies)
    assert await cancelled(vendor) == Cancelled()
    assert len(vendor.requests) == len(replies)


async def test_what_was_not_cancelled_is_looked_up_by_its_id_in_every_status_and_past() -> None:
    vendor = Vendor(posted(no("id", "booking not found")), listing(), listing())
    await cancelled(vendor)
    query = vendor.requests[1].url.params
    assert (query["id"], query["arrivalFrom"]) == ("81", "2000-01-01")
    assert "cancelled" in query.get_list("status")


async def test_a_refused_cancellation() -> None:
    cancellation = await cancelled(Vendor(posted(no("status", "booking is locked")), listing(a_booking())))
    assert isinstance(cancellation, Rejected)
    assert cancellation.problem.code == "cancellation_refused"
    assert cancellation.problem.detail == "status: booking is locked"


@for_each(
    ("replies", "reason"),
    [
        ([posted(no("", "no write access"), status=201), listing(a_booking())], "pms_unauthorized"),
        ([posted(no("", "Internal error")), listing(a_booking())], "pms_failed"),
        ([posted(no("id", "booking not found")), answered(404, b"")], "pms_refused_request"),
        ([posted(no("id", "booking not found")), listing(a_booking(id=7))], "pms_refused_request"),
        ([posted(no("id", "booking not found")), httpx.ReadTimeout("late")], "pms_timed_out"),
        ([posted("what?")], "pms_answer_not_understood"),
        ([posted()], "pms_answer_not_understood"),
        ([answered(404, b"Not found")], "pms_refused_request"),
        ([answered(500, ERROR)], "pms_failed"),
        ([answered(503, b"")], "pms_unavailable"),
        ([httpx.ReadTimeout("late")], "pms_timed_out"),
    ],
)
async def test_a_cancellation_may_be_asked_for_again(replies: list[Reply], reason: str) -> None:
    cancellation = await cancelled(Vendor(*replies))
    assert isinstance(cancellation, Deferred)
    assert cancellation.reason == reason
