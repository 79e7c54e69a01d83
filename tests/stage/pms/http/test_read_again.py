"""What any kind's answer to a create may say besides: that our reference exists already, or that it was meant for another."""

import pytest

from forwarder.pms.http.outcomes import read_again
from forwarder.pms.http.response import Response
from forwarder.reservation.outcome import Deferred, InDoubt, Outcome, Rejected
from forwarder.reservation.problems.problem import Problem

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
]


@pytest.mark.parametrize("body", EXIST)
@pytest.mark.parametrize("status", [400, 409, 422])
@pytest.mark.parametrize("outcome", [NO, LATER])
def test_that_our_reference_exists_is_a_yes(body: str, status: int, outcome: Outcome) -> None:
    read = read_again(outcome, Response(status, content=body.encode()), OURS)
    assert isinstance(read, InDoubt)
    assert (read.reason, read.made, read.status) == ("pms_has_it", True, status)


@pytest.mark.parametrize(
    "body",
    [
        '{"message": "these dates are already booked"}',
        '{"message": "the room is already taken"}',
        '{"error": "a booking already exists for these nights"}',
        '{"message": "reference is too long"}',
        "",
    ],
)
def test_that_the_nights_are_taken_is_a_no(body: str) -> None:
    assert read_again(NO, Response(409, content=body.encode()), OURS) == NO


def test_an_answer_to_another_submission_says_nothing_of_ours() -> None:
    made = InDoubt("pms_answer_not_understood", "", made=True)
    read = read_again(made, Response(201, content=f'{{"reference": "{OTHERS}"}}'.encode()), OURS)
    assert isinstance(read, InDoubt)
    assert not read.made
    read = read_again(made, Response(201, content=f'{{"reference": "{OURS}"}}'.encode()), OURS)
    assert isinstance(read, InDoubt)
    assert (read.made, read.status) == (True, 201)
