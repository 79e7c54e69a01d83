"""Cloudbeds on the wire: what its answers mean, every documented form of failure among them."""

from typing import Any

import httpx
import pytest

from forwarder.reservation.outcome import Absent, Cancelled, Confirmed, Deferred, InDoubt, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.cloudbeds import Vendor, answered, cancel, create, find, item, listed, made, no, shown
from tests.support.simulator.server import CARD, booking

NO_MORE = "User who approved this connection is not active anymore"
NOT_OURS = "None of the included property id's match the access_token user's property id"
CLOSED = (
    "Your request could not be fully completed. The property(ies) you are accessing have an invalid status. "
    "See details:\ncanceled: 77"
)
LOST = httpx.ReadError("gone")


async def test_a_booking_is_confirmed_with_what_its_details_show() -> None:
    details = shown(
        source="Direct channel",
        balanceDetailed={"subTotal": 300, "additionalItems": 0, "taxesFees": 30.5, "grandTotal": 330.5, "paid": 100},
        unassigned=[{"dailyRates": [{"date": "2027-03-01", "rate": 300}]}],
    )
    assert await create(Vendor(postReservation=made(), getReservation=details)) == Confirmed(
        "9001",
        {
            "source": "Direct channel",
            "totalPrice": 330.5,
            "finances": {
                "totalPrice": 330.5,
                "totalPaid": 100,
                "remainingBalance": 230.5,
                "basePrice": {
                    "totalBasePrice": 300,
                    "breakdown": [{"name": "Night of 2027-03-01", "type": "RoomRate", "total": 300}],
                },
                "fee": {"totalFee": 0, "breakdown": []},
                "tax": {
                    "totalTax": 30.5,
                    "breakdown": [{"name": "Taxes and fees", "type": "Tax", "total": 30.5}],
                },
            },
        },
    )


@for_each(
    "details",
    [
        LOST,
        no("Reservation not found"),
        answered(b"<html>", 502),
        answered({"success": True, "data": None}),
        answered({"success": True, "data": {"reservationID": "8000", "total": 1}}),
        answered({"error": "access_denied"}, 401),
    ],
)
async def test_a_booking_is_confirmed_whatever_becomes_of_its_details(details: Any) -> None:
    outcome = await create(Vendor(postReservation=made(), getReservation=details))
    assert outcome == Confirmed("9001", {"totalPrice": 330.5, "finances": {"totalPrice": 330.5}})


@for_each(("price", "read"), [(0.1, 0.1), (450.35, 450.35), (999999999.99, 999999999.99), ("12.50", 12.5), (7, 7)])
async def test_amounts_are_exact(price: object, read: float) -> None:
    outcome = await create(Vendor(postReservation=made(), getReservation=shown(total=price, balance=price)))
    assert isinstance(outcome, Confirmed)
    assert outcome.record["totalPrice"] == read
    assert outcome.record["finances"] == {"totalPrice": read, "remainingBalance": read}


@for_each("wrong", [True, None, [], {}, "many", "NaN", 1e300])
async def test_an_amount_that_is_none_is_left_out(wrong: object) -> None:
    details = shown(total=wrong, balance=wrong, balanceDetailed=[{"paid": wrong, "taxesFees": wrong}])
    outcome = await create(Vendor(postReservation=made(), getReservation=details))
    assert outcome == Confirmed("9001", {})


async def test_a_card_number_that_the_pms_repeats_is_masked() -> None:
    details = shown(source="Card 4111111111111111")
    outcome = await create(Vendor(postReservation=made(), getReservation=details), booking(card=CARD))
    assert isinstance(outcome, Confirmed)
    assert outcome.record["source"] == "Card 411111******1111"


@for_each(
    ("message", "code"),
    [
        ("The room type is not available for the selected dates", "room_unavailable"),
        ("No rooms left", "room_unavailable"),
        ("Parameter rooms: the roomTypeID is not valid", "room_not_found"),
        (NOT_OURS, "property_not_found"),
        ("Parameter propertyID is invalid", "property_not_found"),
        ("Parameter guestEmail is not valid", "guest_refused"),
        ("Parameter guestCountry is required", "guest_refused"),
        ("The minimum stay is 4 nights", "pms_refused"),
        ("The price of this room type has changed", "price_changed"),
        ("The card has expired; please enter the guest's new one", "card_refused"),
    ],
)
@for_each("status", [200, 400])
async def test_a_no_is_told_by_its_message(message: str, code: str, status: int) -> None:
    outcome = await create(Vendor(postReservation=no(message, status)))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == code
    assert outcome.problem.detail == message
    assert outcome.problem.request_id == booking().reference


async def test_a_no_quotes_neither_guest_nor_card() -> None:
    said = "Guest Maria Gonzalez with 4111 1111 1111 1111 is not welcome"
    outcome = await create(Vendor(postReservation=no(said)), booking(card=CARD))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.detail == "Guest […] with […] is not welcome"


@for_each(
    "answer",
    [
        no(NO_MORE),
        no(CLOSED),
        no("Your API key does not have the scope write:reservation"),
        answered({"error": "access_denied", "message": "The resource owner denied the request."}, 401),
        answered({"error": "server_error", "error_description": "The authorization code is invalid."}, 401),
        answered({"success": False, "message": "Forbidden"}, 403),
    ],
)
async def test_an_account_that_is_not_let_in_loses_nothing(answer: httpx.Response) -> None:
    assert _deferred(await create(Vendor(postReservation=answer))) == "pms_unauthorized"
    assert _deferred(await find(Vendor(getReservations=answer))) == "pms_unauthorized"


async def test_a_property_that_the_accounts_options_name_is_the_accounts_mistake() -> None:
    assert _deferred(await create(Vendor(postReservation=no(NOT_OURS)), propertyId="77")) == "pms_unauthorized"


async def test_throttling_is_told_by_status_or_message() -> None:
    for answer in (no("Rate limit exceeded"), no("Too many requests", 429), answered(b"", 429)):
        assert _deferred(await create(Vendor(postReservation=answer))) == "pms_throttled"


@for_each(
    "answer",
    [
        LOST,
        answered(b""),
        answered(b"<html>"),
        answered([]),
        answered({}),
        answered({"success": "true", "reservationID": "9001", "status": "confirmed"}),
        answered({"success": None}),
        no(""),
        no(None),
        no("An internal error occurred"),
        no("Something went wrong, please try again"),
        made(reservationID=None),
        made(reservationID={"value": "9001"}),
        made(reservationID=""),
        made(status=None),
        made(status=["confirmed"]),
        made(status="not_confirmed"),
        answered({"success": True, "reservationID": "9001", "status": "confirmed"}, 400),
        answered({"success": True, "reservationID": "9001", "status": "confirmed"}, 500),
        no("The room type is not available", 500),
        answered(b"", 500),
        answered(b"", 502),
        answered(b"", 503),
        answered(b"", 504),
        answered(b"", 301),
        answered(b"", 408),
    ],
)
async def test_what_may_have_booked_is_in_doubt(answer: Any) -> None:
    vendor = Vendor(postReservation=answer)
    assert isinstance(await create(vendor), InDoubt)
    assert vendor.asked == ["postReservation"]


@pytest.mark.parametrize(("status", "body"), [(404, b"<html>"), (405, b""), (400, b"nginx")])
async def test_what_surely_did_not_book_is_put_off(status: int, body: bytes) -> None:
    assert isinstance(await create(Vendor(postReservation=answered(body, status))), Deferred)


async def test_a_pms_out_of_service_says_when_to_come_again() -> None:
    outcome = await create(Vendor(postReservation=answered(b"", 503, Retry_After="17")))
    assert isinstance(outcome, InDoubt)
    assert outcome.retry_after_seconds == 17.0


async def test_an_unconfirmed_booking_counts_where_the_account_says_so() -> None:
    vendor = Vendor(postReservation=made(status="not_confirmed"), getReservation=shown(status="not_confirmed"))
    assert isinstance(await create(vendor, acceptUnconfirmed=True), Confirmed)
    vendor = Vendor(getReservations=listed(item(status="not_confirmed")), getReservation=shown())
    assert _deferred(await find(vendor)) == "pms_still_working"
    assert isinstance(await find(vendor, acceptUnconfirmed=True), Confirmed)


@pytest.mark.parametrize("status", ["confirmed", "checked_in", "checked_out", "no_show"])
async def test_what_is_found_is_confirmed(status: str) -> None:
    for items in ([item(status=status)], [item(status="canceled", reservationID="1"), item(status=status)]):
        outcome = await find(Vendor(getReservations=listed(*items), getReservation=shown()))
        assert outcome == Confirmed(
            "9001", {"totalPrice": 330.5, "finances": {"totalPrice": 330.5, "remainingBalance": 230.5}}
        )


async def test_an_empty_list_is_absence() -> None:
    assert await find(Vendor(getReservations=listed())) == Absent()


async def test_what_was_cancelled_since_is_neither_made_again_nor_confirmed() -> None:
    assert _deferred(await find(Vendor(getReservations=listed(item(status="canceled"))))) == "cancelled_in_pms"


@for_each(
    "answer",
    [
        listed(item(thirdPartyIdentifier="other")),
        listed({"reservationID": "9001", "status": "confirmed"}),
        listed("9001"),
        listed(total=3),
        listed(count=1),
        listed(item(reservationID=None)),
        listed(item(status={"value": 1})),
        listed(item(status="in_progress")),
        answered({"success": True, "data": None}),
        answered({"success": True, "data": {}}),
        answered({"success": True}),
        answered({"success": True, "data": []}, 400),
        answered({"success": True, "data": []}, 500),
        answered(b"", 404),
        answered(b"<html>"),
        no("Parameter propertyID is invalid"),
        no("An internal error occurred"),
        no(""),
        LOST,
    ],
)
async def test_a_list_that_may_not_have_been_searched_decides_nothing(answer: Any) -> None:
    assert isinstance(await find(Vendor(getReservations=answer)), Deferred)


@pytest.mark.parametrize(
    "answer", [answered({"success": True}), answered({"success": True, "data": {"status": "canceled"}})]
)
async def test_a_cancellation(answer: httpx.Response) -> None:
    vendor = Vendor(putReservation=answer)
    assert await cancel(vendor) == Cancelled()
    assert vendor.asked == ["putReservation"]


async def test_what_was_cancelled_before_is_cancelled() -> None:
    vendor = Vendor(putReservation=no("It cannot be changed"), getReservation=shown(status="canceled"))
    assert await cancel(vendor) == Cancelled()


async def test_what_is_surely_not_there_is_cancelled() -> None:
    gone = {"putReservation": no("Reservation not found"), "getReservation": no("Reservation not found")}
    assert await cancel(Vendor(**gone, getReservations=listed())) == Cancelled()
    for searched in (listed(item()), no(NO_MORE), answered(b"", 404)):
        assert isinstance(await cancel(Vendor(**gone, getReservations=searched)), Deferred)
    vendor = Vendor(**gone, getReservations=listed())
    assert _deferred(await cancel(vendor, sourceId="s-1")) == "pms_refused_request"
    assert "getReservations" not in vendor.asked


async def test_a_cancellation_that_the_pms_refuses() -> None:
    outcome = await cancel(Vendor(putReservation=no("Guest has checked in"), getReservation=shown(status="checked_in")))
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "cancellation_refused"
    assert outcome.problem.detail == "Guest has checked in"


@for_each(
    "answer",
    [
        LOST,
        httpx.ConnectError("no"),
        answered(b"", 404),
        answered(b"", 500),
        answered(b"<html>"),
        answered({"success": True, "data": {"status": "confirmed"}}),
        no("An internal error occurred"),
        no(NO_MORE),
        no("Reservation not found"),
    ],
)
async def test_a_cancellation_that_did_not_surely_happen_is_put_off(answer: Any) -> None:
    unseen = answered({"error": "access_denied"}, 401)
    vendor = Vendor(putReservation=answer, getReservation=unseen, getReservations=unseen)
    assert isinstance(await cancel(vendor), Deferred)


def _deferred(outcome: object) -> str:
    assert isinstance(outcome, Deferred), outcome
    return outcome.reason


@pytest.mark.parametrize(
    "others",
    [
        {"thirdPartyIdentifier": "rsv_of_another"},
        {"startDate": "2027-05-01"},
        {"startDate": "2027-03-01", "endDate": "2027-03-09T00:00:00"},
    ],
)
async def test_an_answer_about_another_booking_is_in_doubt_and_another_bookings_details_are_not_ours(
    others: dict[str, str],
) -> None:
    """999 was confirmed as the price of a booking that somebody else had made."""
    assert isinstance(await create(Vendor(postReservation=made(**others), getReservation=shown())), InDoubt)
    details = shown(**others, total=999, balanceDetailed={"grandTotal": 999})
    confirmed = await create(Vendor(postReservation=made(), getReservation=details))
    assert isinstance(confirmed, Confirmed)
    assert confirmed.record["totalPrice"] == 330.5
