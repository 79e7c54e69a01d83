"""The integration rules of section 4 of the contract, as a table of cases each."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from forwarder.pms.accounts import traits_of
from forwarder.reservation.booking import Booking, apply_rules
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import CardDetails, Operation, SealedCard
from forwarder.reservation.submission import Submission
from tests.support.cases import for_each
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, CARD, GENERAL, changed

KINDS = ["beds24", "booking-sync", "cloudbeds", "generic", "hostaway", "website-builder", "of-another-distribution"]
NO_ROOMS = ["booking-sync", "hostaway"]
HOUSE = BOOKING_ENGINE | {"roomId": BOOKING_ENGINE["propertyId"]}
NOW = datetime(2027, 1, 1, tzinfo=UTC)
FULL_CARD = CardDetails.model_validate(CARD)
NO_NUMBER = CardDetails.model_validate({"cvv": "987"})
BLANK_NUMBER = CardDetails.model_validate({"cardNumber": "  "})
EMPTY_NUMBER = CardDetails.model_validate({"cardNumber": ""})


def _submission(body: dict[str, Any], operation: Operation = "booking-engine") -> Submission:
    sealed = SealedCard("key", "c2VhbGVk")
    return Submission("rsv_1", "ws", "acc", operation, datetime(2027, 1, 1, tzinfo=UTC), body, "f" * 32, sealed)


def _apply(kind: str, body: dict[str, Any], card: CardDetails | None) -> Booking | Problem:
    return apply_rules(traits_of(kind), _submission(body), card, NOW)


def _booking(kind: str, body: dict[str, Any], card: CardDetails | None = FULL_CARD) -> Booking:
    booking = _apply(kind, body, card)
    assert isinstance(booking, Booking)
    return booking


@for_each(
    ("kind", "mor_channel", "card", "refused"),
    [
        ("booking-sync", "PMS", None, True),
        ("booking-sync", "PMS", NO_NUMBER, True),
        ("booking-sync", "PMS", EMPTY_NUMBER, True),
        ("booking-sync", "PMS", BLANK_NUMBER, True),
        ("booking-sync", "PMS", FULL_CARD, False),
        ("booking-sync", "SELF", None, False),
        ("booking-sync", ABSENT, None, False),
        ("generic", "PMS", None, False),
        ("cloudbeds", "PMS", None, False),
        ("website-builder", "PMS", None, False),
    ],
)
def test_booking_sync_needs_a_card_where_the_pms_takes_the_payment(
    kind: str, mor_channel: str, card: CardDetails | None, *, refused: bool
) -> None:
    result = _apply(kind, changed(HOUSE, "morChannel", mor_channel), card)
    if refused:
        assert isinstance(result, Problem)
        assert (result.code, result.status, result.request_id) == ("card_required", 422, "rsv_1")
        [fault] = result.faults
        assert fault.pointer == ("/cardDetails" if card is None else "/cardDetails/cardNumber")
    else:
        assert isinstance(result, Booking)
        assert result.card is card


@for_each(
    ("provider_id", "website_id"),
    [
        (77, "77"),
        ("site-1", "site-1"),
        (" site-1 ", "site-1"),
        (0, "0"),
        (ABSENT, None),
        (None, None),
        ("", None),
        ("  ", None),
    ],
)
def test_website_builder_takes_its_website_from_the_payment_provider_id(
    provider_id: Any, website_id: str | None
) -> None:
    body = changed(BOOKING_ENGINE, "paymentProviderId", provider_id)
    result = _apply("website-builder", body, None)
    if website_id is None:
        assert isinstance(result, Problem)
        assert (result.code, result.status, result.request_id) == ("website_id_required", 422, "rsv_1")
        assert [fault.pointer for fault in result.faults] == ["/paymentProviderId"]
    else:
        assert isinstance(result, Booking)
        assert result.website_id == website_id


@pytest.mark.parametrize("kind", ["generic", "booking-sync", "cloudbeds"])
def test_for_other_kinds_the_payment_provider_id_is_no_website(kind: str) -> None:
    booking = _booking(kind, HOUSE)
    assert booking.website_id is None
    assert booking.fields["paymentProviderId"] == 77


@for_each("kind", KINDS)
@for_each("property_id", [1001, "00123"])
@for_each("room_id", [ABSENT, None])
def test_without_a_room_the_propertys_id_is_the_rooms(kind: str, property_id: Any, room_id: Any) -> None:
    booking = _booking(kind, changed(BOOKING_ENGINE | {"propertyId": property_id}, "roomId", room_id))
    assert booking.fields["roomId"] == property_id
    assert booking.room_id == str(property_id)


@pytest.mark.parametrize("room_id", ["A-7", 0, 7])
def test_a_room_that_was_given_stays(room_id: Any) -> None:
    assert _booking("generic", BOOKING_ENGINE | {"roomId": room_id}).fields["roomId"] == room_id


@for_each("kind", NO_ROOMS)
@for_each(("property_id", "room_id"), [(1001, 1002), ("7", "07"), (7, "A-7"), (0, 7)])
def test_where_there_are_no_rooms_the_room_is_the_property(kind: str, property_id: Any, room_id: Any) -> None:
    refused = _apply(kind, BOOKING_ENGINE | {"propertyId": property_id, "roomId": room_id}, None)
    assert isinstance(refused, Problem)
    assert (refused.code, refused.status, refused.request_id) == ("no_rooms", 422, "rsv_1")
    assert [fault.pointer for fault in refused.faults] == ["/roomId"]
    same = _booking(kind, BOOKING_ENGINE | {"propertyId": property_id, "roomId": str(property_id)})
    assert same.room_id == same.property_id


@for_each("kind", sorted({*KINDS} - {*NO_ROOMS}))
def test_other_kinds_have_rooms(kind: str) -> None:
    assert _booking(kind, BOOKING_ENGINE).room_id == "A-7"


@for_each(
    ("kind", "mor_channel", "refused"),
    [
        ("generic", "SELF", True),
        ("website-builder", "PMS", True),
        ("of-another-distribution", "SELF", True),
        ("booking-sync", "PMS", True),
        ("booking-sync", "SELF", False),
        ("hostaway", "PMS", False),
        ("beds24", "PMS", False),
        ("cloudbeds", "PMS", False),
    ],
)
def test_a_card_that_is_none_is_refused_where_it_would_be_sent(kind: str, mor_channel: str, *, refused: bool) -> None:
    wrong = CardDetails.model_validate(CARD | {"cardNumber": "notacard", "expiryMonth": "13"})
    result = _apply(kind, HOUSE | {"morChannel": mor_channel}, wrong)
    if refused:
        assert isinstance(result, Problem)
        assert (result.code, result.status) == ("card_invalid", 422)
        assert [fault.pointer for fault in result.faults] == ["/cardDetails/cardNumber", "/cardDetails/expiryMonth"]
        assert "notacard" not in repr(result)
    else:
        assert isinstance(result, Booking)


def test_every_broken_rule_has_its_fault_in_the_problem_of_the_first() -> None:
    refused = _apply("booking-sync", BOOKING_ENGINE | {"morChannel": "PMS"}, None)
    assert isinstance(refused, Problem)
    assert refused.code == "card_required"
    assert [fault.pointer for fault in refused.faults] == ["/cardDetails", "/roomId"]


@for_each("kind", KINDS)
def test_self_may_carry_the_hosts_transaction_which_is_passed_on(kind: str) -> None:
    booking = _booking(kind, HOUSE | {"morChannel": "SELF", "transactionId": "tx-1"})
    assert (booking.fields["morChannel"], booking.fields["transactionId"]) == ("SELF", "tx-1")
    assert "transactionId" not in _booking(kind, changed(HOUSE, "transactionId", ABSENT)).fields


@pytest.mark.parametrize("body", [BOOKING_ENGINE, GENERAL])
def test_every_field_is_passed_on_as_it_came_but_the_masked_card(body: dict[str, Any]) -> None:
    masked = body | {"cardDetails": {"cardNumber": "411111******1111"}}
    assert _booking("generic", masked).fields == body


def test_rules_leave_the_submission_as_it_is() -> None:
    body = changed(BOOKING_ENGINE, "roomId", ABSENT)
    _booking("website-builder", body)
    assert body == changed(BOOKING_ENGINE, "roomId", ABSENT)


def test_what_an_adapter_reads_of_a_booking() -> None:
    booking = _booking("generic", BOOKING_ENGINE)
    assert booking.reference == "rsv_1"
    assert (booking.property_id, booking.room_id) == ("1001", "A-7")
    assert (booking.arrival, booking.departure) == (date(2027, 6, 1), date(2027, 6, 5))
    assert (booking.total_price, booking.currency) == (Decimal("480.5"), "EUR")
    assert booking.guest_name == "Ana Ruiz"
    assert "4111" not in repr(booking)


@for_each(
    ("guest", "name"),
    [
        ({"name": "Ana Ruiz"}, "Ana Ruiz"),
        ({"firstName": "Ana", "lastName": "Ruiz"}, "Ana Ruiz"),
        ({"lastName": "Ruiz"}, "Ruiz"),
        ({"name": "", "firstName": "Ana", "lastName": None}, "Ana"),
        ({}, ""),
    ],
)
def test_the_guests_name_from_what_there_is(guest: dict[str, Any], name: str) -> None:
    booking = _booking("generic", GENERAL | {"guest": guest})
    assert booking.guest_name == name


def test_what_a_general_booking_may_lack() -> None:
    body = {"propertyId": 1, "arrivalDate": "2027-06-01", "departureDate": "2027-06-02", "guest": {}}
    booking = _booking("generic", body, None)
    assert (booking.total_price, booking.currency, booking.card) == (None, None, None)
