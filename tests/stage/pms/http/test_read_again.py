"""What any kind's answer to a create may say besides: that our reference exists already, or that it was meant for another."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import httpx
import pytest
from pydantic_core import from_json

from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.outcomes import read_again
from forwarder.pms.http.response import Response
from forwarder.pms.kinds.generic import GenericAdapter
from forwarder.pms.port import AccountConnection
from forwarder.pms.registry import Registry
from forwarder.reservation import problems as catalogue
from forwarder.reservation.booking import Booking, ReferenceForm
from forwarder.reservation.outcome import Confirmed, Deferred, InDoubt, Outcome, Rejected
from forwarder.reservation.problems import Problem
from tests.support.cases import for_each
from tests.support.memory.clock import ManualClock
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import booking

OURS = "rsv_" + "a" * 32
OTHERS = "rsv_" + "b" * 32
NO = Rejected(Problem("pms_refused", "Refused", 409, "No."))
LATER = Deferred("pms_refused_request", "No words.")
EXIST = [
    '{"message": "a reservation with this external reference already exists"}',
    '{"errors": {"external_id": ["has already been taken"]}}',
    '{"error": "Duplicate confirmationCode"}',
    '{"detail": "confirmation code must be unique"}',
    '{"title": "externalBookingId is already in use"}',
    f'{{"error": "{OURS} already exists"}}',
    '{"code": "REFERENCE_EXISTS"}',
    '{"errors": {"externalId": {"code": "duplicate"}}}',
    '{"errors": [{"source": {"pointer": "/data/attributes/reference"}, "detail": "has already been taken"}]}',
    '{"errors": [{"field": "external_id", "messages": ["has been taken"]}]}',
    f'{{"reference": "{OURS}", "status": "duplicate reference"}}',
    "<error>The external reference exists already</error>",
    '{"errors": {"external_reservation_id": ["has already been taken"]}}',
    '{"errors": [{"code": "taken", "field": "externalId"}]}',
    '{"errors": [{"code": "not_unique", "field": "partnerBookingId"}]}',
    '{"error": "Another request with this idempotency key is in progress"}',
    '{"message": "Die Referenz existiert bereits"}',
    '{"message": "La referencia externa ya existe"}',
    '{"message": "Il riferimento esiste gi\u00e0"}',
    '{"message": "Referentie bestaat al"}',
    '{"message": "Die Referenz existiert"}',
    '{"message": "This reference has been used before"}',
    '{"message": "external_id conflicts with an existing booking"}',
    '{"message": "UNIQUE constraint failed: bookings.external_id"}',
    '{"errors": {"ref": ["has already been taken"]}}',
    '{"code": "duplicate_reservation"}',
    '{"message": "A duplicate booking was detected"}',
    '{"message": "This request has already been processed"}',
    '{"error": "Reservation already exists"}',
]


@for_each(
    "sent",
    [
        f'{{"guest":{{}},"reservation_code":"{OURS}","room":"7"}}',
        f'[{{"reservationCode": "{OURS}"}}]',
        f"room=7&reservation-code={OURS}",
    ],
)
def test_a_pms_may_call_our_reference_as_the_request_did(sent: str) -> None:
    no = Response(422, content=b'{"message": "The reservation code has already been taken."}')
    assert isinstance(read_again(NO, no, OURS, sent.encode()), InDoubt)
    assert read_again(NO, no, OURS, sent.replace(OURS, OTHERS).encode()) == NO


def test_a_single_word_may_be_its_name_unless_it_may_be_that_of_anything() -> None:
    for name, expected in (("voucher", InDoubt), ("booking", Rejected), ("code", Rejected), ("参照", Rejected)):
        no = Response(422, content=f'{{"message": "The {name} is already taken"}}'.encode())
        assert isinstance(read_again(NO, no, OURS, f'{{"{name}": "{OURS}"}}'.encode()), expected), name


@for_each("body", EXIST)
def test_that_our_reference_exists_is_a_yes(body: str) -> None:
    outcomes: Sequence[Outcome] = (NO, LATER)
    for status, outcome in product([200, 400, 403, 409, 412, 422], outcomes):
        read = read_again(outcome, Response(status, content=body.encode()), OURS)
        assert isinstance(read, InDoubt)
        assert (read.reason, read.made, read.status) == ("pms_has_it", True, status)


@for_each(
    "body",
    [
        '{"message": "these dates are already booked"}',
        '{"message": "the room is already taken"}',
        '{"error": "a booking already exists for these nights"}',
        '{"message": "reference is too long"}',
        "",
        f'{{"reference": "{OURS}", "message": "the room is already booked"}}',
        f'{{"message": "the room is already booked", "booking": {{"externalReference": "{OURS}"}}}}',
        f'{{"code": "room_already_booked", "reference": "{OURS}", "instance": "/bookings?reference={OURS}"}}',
        f'{{"title": "{OURS} was not made", "errors": [{{"message": "already booked"}}]}}',
        f'{{"message": "a reservation with reference {OTHERS} exists already in this room"}}',
        '{"message": "the rate for this reference does not exist"}',
        '{"code": "REFERENCE_NOT_EXISTING"}',
        '{"message": "Die Referenz ist zu lang"}',
        '{"message": "room 7 is taken by reservation 12"}',
        '{"message": "No existing reservation has this reference"}',
        '{"message": "The reference is not used"}',
        '{"message": "The reference is used for the invoice, and the room is full"}',
        '{"error": "Double booking"}',
    ],
)
def test_that_the_nights_are_taken_is_a_no(body: str) -> None:
    assert read_again(NO, Response(409, content=body.encode()), OURS) == NO


@for_each(
    ("status", "body", "exists"),
    [
        (409, f'{{"message": "Conflict", "booking": {{"id": 77, "ref": "{OURS.upper()}"}}}}', True),
        (409, f'{{"_id": "x", "externalId": "{OURS}", "state": "new"}}', True),
        (422, f'{{"errors": [{{"existing": {{"bookingId": 7, "code": "HA-{OURS}"}}}}]}}', True),
        (409, f'{{"id": "err-1", "ref": "{OURS}", "detail": "the room is booked"}}', False),
        (409, f'{{"message": "Conflict", "booking": {{"id": 77, "ref": "{OTHERS}"}}}}', False),
        (201, f'{{"id": 77, "ref": "{OURS}", "state": "declined"}}', False),
    ],
)
def test_a_no_that_shows_a_reservation_with_our_reference_is_a_yes(status: int, body: str, exists: bool) -> None:
    read = read_again(NO, Response(status, content=body.encode()), OURS)
    assert isinstance(read, InDoubt if exists else Rejected)


def test_what_a_guest_wrote_is_read_in_linear_time_where_a_pms_repeats_it() -> None:
    """Else this would take longer than any test may: it held up all pushes of a worker."""
    said = f'{{"guest": {{"name": "{"rsv" * 6_000} Doe"}}, "detail": "the room is booked"}}'
    assert read_again(NO, Response(409, content=said.encode()), OURS) == NO


def test_what_is_too_long_to_be_read_to_its_end_may_have_ours_there() -> None:
    made = InDoubt("pms_answer_not_understood", "", made=True)
    read = read_again(made, Response(201, content=f'["{OTHERS}",{"0," * 10_000}"{OURS}"]'.encode()), OURS)
    assert isinstance(read, InDoubt)
    assert read.made


async def test_a_yes_on_which_an_adapter_stumbles_stays_a_yes() -> None:
    class Stumbles(GenericAdapter):
        async def create(self, booking: Booking, send: Send) -> Outcome:
            response = await send(Request("POST", "https://pms.test/", query=booking.property_id))
            return Confirmed(from_json(response.content)["id"])

    for status in (201, 500):
        way = replying(lambda _, status=status: httpx.Response(status, content=b"{}"))
        async with open_directory(ManualClock(), registry=Registry({"stumbles": Stumbles}), transport=way) as directory:
            pms = directory.connect(AccountConnection("acme", "stumbles", "https://pms.test", "key"))
            if status == 201:
                outcome = await pms.create(booking())
                assert isinstance(outcome, InDoubt)
                assert outcome.made
            else:
                with pytest.raises(KeyError):
                    await pms.create(booking())


def test_an_answer_to_another_submission_says_nothing_of_ours() -> None:
    made = InDoubt("pms_answer_not_understood", "", made=True)
    read = read_again(made, Response(201, content=f'{{"reference": "{OTHERS}"}}'.encode()), OURS)
    assert isinstance(read, InDoubt)
    assert not read.made
    read = read_again(made, Response(201, content=f'{{"reference": "{OURS}"}}'.encode()), OURS)
    assert isinstance(read, InDoubt)
    assert (read.made, read.status) == (True, 201)


@pytest.mark.parametrize(
    ("said", "made", "pms_id"),
    [(f'{{"id": 77, "ref": "{OTHERS.upper()}"}}', False, None), (f'{{"id": 78, "ref": "{OTHERS}"}}', True, "77")],
    ids=["with another's id", "after an answer that had ours"],
)
def test_the_id_that_came_with_anothers_reference_is_anothers(said: str, made: bool, pms_id: str | None) -> None:
    doubt = InDoubt("pms_answer_not_understood", "", made=True, pms_reservation_id="77")
    read = read_again(doubt, Response(201, content=said.encode()), OURS)
    assert isinstance(read, InDoubt)
    assert (read.made, read.pms_reservation_id) == (made, pms_id)


async def test_of_several_in_one_request_each_is_read_like_one_alone() -> None:
    class Several(GenericAdapter):
        capabilities = replace(GenericAdapter.capabilities, max_per_create=3, reference_form=ReferenceForm(30))

        async def create_many(self, bookings: Sequence[Booking], send: Send) -> Sequence[Outcome]:
            _, has_it, refused = (booking.reference for booking in bookings)
            return [
                Confirmed("7"),
                Rejected(catalogue.PMS_REFUSED.problem("The external id exists already.", has_it)),
                Rejected(catalogue.PMS_REFUSED.problem("No pets.", refused)),
            ]

    asked = [booking(number) for number in (1, 2, 3)]
    async with open_directory(ManualClock(), registry=Registry({"several": Several})) as directory:
        pms = directory.connect(AccountConnection("acme", "several", "https://pms.test", "key"))
        unnamed, has_it, refused = await pms.create_many(asked)
    assert isinstance(unnamed, InDoubt)
    assert (unnamed.reason, unnamed.pms_reservation_id) == ("pms_reference_missing", "7")
    assert isinstance(has_it, InDoubt)
    assert (has_it.reason, has_it.made) == ("pms_has_it", True)
    assert isinstance(refused, Rejected)
    assert refused.problem.request_id == asked[2].reference
