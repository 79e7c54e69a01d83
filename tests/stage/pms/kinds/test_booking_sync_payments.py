"""BookingSync: what was paid elsewhere is noted, and cards are charged by the vendor's platform, where options say so."""

import json
from typing import Any

import httpx
import pytest

from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected
from tests.support.cases import for_each
from tests.support.pms.kinds.booking_sync import (
    CLIENT,
    a_booking,
    answered,
    asked_for,
    booked,
    create,
    resource_in,
    with_options,
)
from tests.support.simulator.server import CARD, booking

PAID: dict[str, Any] = {"morChannel": "SELF", "transactionId": "tx-1"}
PAID_LINES = "Payment taken by: the host or the booking engine (SELF)\nPayment transaction: tx-1, paid with the booking"
NOTING = with_options(recordPayments=True)
GATEWAY = {"gatewayId": "123", "gatewayName": "stripe"}
PLATFORM = "https://secure.bookingsync.com/api/bookingsync/instant_bookings"
CHARGING = with_options(securePayments=GATEWAY)
MADE = answered(201, {"bookings": [a_booking(final_price="450.35", currency="EUR", paid_amount="0.0")]})
HELD = answered(201, {"bookings": [a_booking(status="Tentative", booked=False)]})
PAYMENT = answered(201, {"payments": [{"id": 23}]})
CONFIRMED = answered(200, {"bookings": [a_booking(final_price="450.35", currency="EUR", paid_amount="450.35")]})
CHARGED = httpx.Response(200)
LET_GO = httpx.Response(204)
DECLINED = answered(422, {"payment": ["authorization declined"]})


# --- paid elsewhere -------------------------------------------------------------------------------------------------------


async def test_what_was_paid_elsewhere_is_noted() -> None:
    outcome, requests = await create(booking(**PAID), CLIENT, MADE, PAYMENT, connection=NOTING)
    assert asked_for(requests)[2] == ("POST", "/bookings/5/payments")
    assert resource_in(requests[2], "payments") == {
        "amount_in_cents": 45035,
        "currency": "EUR",
        "kind": "online",
        "transaction_id": "tx-1",
        "paid_at": "2026-12-31T23:59:00Z",
        "fullname": "Maria Gonzalez",
        "email": "maria@example.com",
        "address1": "Calle Mayor 7",
        "city": "Madrid",
        "zip": "28013",
        "country_code": "ES",
    }
    assert isinstance(outcome, Confirmed)
    assert outcome.record["finances"] == {
        "totalPrice": 450.35,
        "currency": "EUR",
        "totalPaid": 450.35,
        "remainingBalance": 0,
    }


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(422), httpx.ReadTimeout("late")])
async def test_a_note_that_is_lost_takes_nothing_from_the_booking(answer: httpx.Response | httpx.HTTPError) -> None:
    outcome, requests = await create(booking(**PAID), CLIENT, MADE, answer, connection=NOTING)
    assert isinstance(outcome, Confirmed)
    assert outcome.record["finances"]["totalPaid"] == 0
    assert resource_in(requests[1], "bookings")["comments"] == [{"content": PAID_LINES}]


@for_each(
    "fields",
    [
        {},
        {"morChannel": "SELF"},
        {"morChannel": "PMS", "transactionId": "tx-1"},
        {**PAID, "totalPrice": 0},
        {**PAID, "currency": "JPY"},
        {**PAID, "currency": None},
        {**PAID, "totalPrice": 0.005},
    ],
)
async def test_what_cannot_be_told_in_cents_is_not_noted(fields: dict[str, Any]) -> None:
    outcome, requests = await create(booking(**fields), CLIENT, MADE, connection=NOTING)
    assert isinstance(outcome, Confirmed)
    assert len(requests) == 2


async def test_nothing_is_noted_unless_the_account_wants_it() -> None:
    _, requests = await create(booking(**PAID), CLIENT, MADE)
    assert len(requests) == 2
    assert "paid" not in resource_in(requests[1], "bookings")["comments"][0]["content"].lower().replace("payment", "")


# --- cards ----------------------------------------------------------------------------------------------------------------


def by_card(**fields: Any) -> Booking:
    return booking(card=CARD, morChannel="PMS", **fields)


async def pay(*answers: httpx.Response | httpx.HTTPError) -> tuple[Outcome, list[httpx.Request]]:
    """What it comes to once the nights are held and a payment is there."""
    return await create(by_card(), CLIENT, HELD, PAYMENT, *answers, connection=CHARGING)


async def test_the_card_is_charged_for_a_booking_that_is_held_until_then() -> None:
    outcome, requests = await pay(CHARGED, CONFIRMED)
    assert asked_for(requests) == [
        ("POST", "/clients"),
        ("POST", "/rentals/5001/bookings"),
        ("POST", "/bookings/5/payments"),
        ("POST", PLATFORM),
        ("GET", "/bookings/5"),
    ]
    held = resource_in(requests[1], "bookings")
    assert (held["booked"], held["tentative_expires_at"]) == (False, "2027-01-01T00:10:00Z")
    payment = resource_in(requests[2], "payments")
    assert (payment["kind"], payment["amount_in_cents"], payment["gateway_id"]) == ("instant-booking", 45035, "123")
    assert json.loads(requests[3].content) == {
        "tentative_payment_id": 23,
        "card_number": "4111111111111111",
        "cardholder_name": "Maria Gonzalez",
        "expires_at_month": "07",
        "expires_at_year": "2031",
        "security_code": "8264",
        "address1": "Calle Mayor 7",
        "city": "Madrid",
        "zip": "28013",
        "country_code": "ES",
        "gateway_id": "123",
        "gateway_name": "stripe",
        "gateway_type": "PaymentGateway",
    }
    assert isinstance(outcome, Confirmed)
    assert outcome.record["finances"]["totalPaid"] == 450.35


async def test_an_expiry_is_written_in_full() -> None:
    card = CARD.model_copy(update={"expiry_month": "7", "expiry_year": " 31"})
    asked = booking(card=card, morChannel="PMS")
    _, requests = await create(asked, CLIENT, HELD, PAYMENT, CHARGED, CONFIRMED, connection=CHARGING)
    charge = json.loads(requests[3].content)
    assert (charge["expires_at_month"], charge["expires_at_year"]) == ("07", "2031")


async def test_the_card_is_in_no_other_request_and_no_credential_in_that_one() -> None:
    _, requests = await pay(CHARGED, CONFIRMED)
    with_card = [request for request in requests if b"4111" in request.content or b"8264" in request.content]
    assert [str(request.url) for request in with_card] == [PLATFORM]
    assert "Authorization" not in with_card[0].headers


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (DECLINED, "authorization declined"),
        (answered(422, {"credit_card": ["number - is not a valid credit card number"]}), "not a valid"),
        (answered(422, {"security_code": ["can't be blank"]}), "security_code"),
        (answered(202, {"gateway_name": "stripe", "uuid": "u"}), "3-D Secure"),
    ],
)
async def test_a_card_that_is_refused_gives_the_nights_back(answer: httpx.Response, says: str) -> None:
    outcome, requests = await pay(answer, LET_GO)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "card_refused"
    assert says in outcome.problem.detail
    assert asked_for(requests)[-1] == ("DELETE", "/bookings/5")


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(404), httpx.ReadTimeout("late")])
async def test_nights_that_could_not_be_given_back_are_held_against_ourselves(
    answer: httpx.Response | httpx.HTTPError,
) -> None:
    outcome, _ = await pay(DECLINED, answer)
    assert isinstance(outcome, InDoubt)
    assert outcome.reason == "pms_still_working"


@for_each(
    "answer",
    [
        httpx.ReadTimeout("late"),
        httpx.ReadError("reset"),
        answered(422, {"server": ["the gateway failed"]}),
        answered(422, {"api": ["no connection"]}),
        answered(422, {"payment": ["declined"], "server": ["and failed"]}),
        answered(422, b"<html>"),
        answered(422, {}),
        httpx.Response(500),
        httpx.Response(503),
        httpx.Response(302),
        httpx.Response(404),
    ],
)
async def test_where_the_card_may_have_been_charged_nothing_is_touched(
    answer: httpx.Response | httpx.HTTPError,
) -> None:
    outcome, requests = await pay(answer)
    assert isinstance(outcome, InDoubt)
    assert len(requests) == 4


@pytest.mark.parametrize(
    "answer",
    [
        answered(200, {"bookings": [a_booking(status="Tentative", booked=False)]}),
        answered(200, {"bookings": [a_booking(id=6)]}),
        httpx.Response(500),
        httpx.ReadTimeout("late"),
    ],
)
async def test_a_charge_that_is_not_captured_yet_is_looked_for_later(answer: httpx.Response | httpx.HTTPError) -> None:
    outcome, _ = await pay(CHARGED, answer)
    assert isinstance(outcome, InDoubt)
    assert outcome.reason == "pms_still_working"


@pytest.mark.parametrize(
    "answer",
    [httpx.Response(500), httpx.ReadTimeout("late"), answered(422, {"errors": {"gateway_id": ["is invalid"]}})],
)
async def test_without_a_payment_no_card_leaves_and_the_nights_are_free(
    answer: httpx.Response | httpx.HTTPError,
) -> None:
    outcome, requests = await create(by_card(), CLIENT, HELD, answer, LET_GO, connection=CHARGING)
    assert isinstance(outcome, Deferred)
    assert asked_for(requests)[-1] == ("DELETE", "/bookings/5")
    assert not [request for request in requests if b"4111" in request.content]


async def test_a_gateway_that_is_not_the_rentals_can_be_put_right() -> None:
    outcome, _ = await pay(answered(422, {"data": ["no gateway"]}), LET_GO)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_payment_not_possible"


@pytest.mark.parametrize("answer", [httpx.ReadTimeout("late"), MADE, httpx.Response(500), answered(201, b"")])
async def test_nights_that_may_be_held_are_in_doubt(answer: httpx.Response | httpx.HTTPError) -> None:
    outcome, requests = await create(by_card(), CLIENT, answer, connection=CHARGING)
    assert isinstance(outcome, InDoubt)
    assert len(requests) == 2


@pytest.mark.parametrize("fields", [{"currency": "JPY"}, {"totalPrice": 0.005}, {"currency": None}])
async def test_a_price_that_has_no_cents_is_not_charged(fields: dict[str, Any]) -> None:
    outcome, requests = await create(by_card(**fields), connection=CHARGING)
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "card_refused"
    assert requests == []


@pytest.mark.parametrize("fields", [{"morChannel": "SELF"}, {}])
async def test_only_where_the_pms_takes_the_payment_is_a_card_charged(fields: dict[str, Any]) -> None:
    outcome, requests = await create(booking(card=CARD, **fields), CLIENT, MADE, connection=CHARGING)
    assert isinstance(outcome, Confirmed)
    assert not [request for request in requests if b"4111" in request.content]


async def test_without_the_option_the_booking_is_made_and_no_card_leaves() -> None:
    outcome, requests = await create(by_card(), CLIENT, MADE)
    assert isinstance(outcome, Confirmed)
    assert not [request for request in requests if b"4111" in request.content]


async def test_no_card_is_in_what_can_be_written_down() -> None:
    said = "4111 1111 1111 1111 of Maria Gonzalez with 8264"
    for answer in (
        answered(422, {"credit_card": [said]}),
        answered(422, {"server": [said]}),
        answered(422, {"data": [said]}),
    ):
        outcome, _ = await pay(answer, LET_GO)
        assert not [digits for digits in ("4111", "8264") if digits in repr(outcome)]
    outcome = await booked(201, {"bookings": [a_booking(notes=said)]})
    assert isinstance(outcome, Confirmed)
