"""What stays without the guest is named: whatever else there is, in whatever form, is dropped."""

from typing import Any

import pytest

from forwarder.reservation.outcome import Status
from forwarder.reservation.record import (
    SubmissionState,
    anonymous_data,
    anonymous_problem,
    anonymous_record,
    anonymous_request,
    compose_record,
)
from forwarder.reservation.request import MODELS, Operation

STAY = {
    "propertyId": 7,
    "arrivalDate": "2027-03-01",
    "departureDate": "2027-03-04",
    "totalPrice": 90,
    "currency": "EUR",
}


@pytest.mark.parametrize("operation", ["general", "booking-engine"])
def test_no_field_of_a_request_stays_unless_it_tells_nothing_of_the_guest(operation: Operation) -> None:
    kept = anonymous_request(dict.fromkeys((field.alias or "" for field in MODELS[operation].model_fields.values()), 1))
    assert kept.pop("guest") == {}
    assert kept.keys() <= {
        *STAY,
        "roomId",
        "numberOfGuests",
        "numberOfAdults",
        "numberOfChildren",
        "numberOfInfants",
        "paymentProviderId",
    }


def test_what_has_another_form_than_usual_is_dropped() -> None:
    assert anonymous_request(STAY | {"roomId": {"of": "Maria"}, "currency": ["Maria"]}) == {
        **{name: value for name, value in STAY.items() if name != "currency"},
        "guest": {},
    }


def test_the_record_is_that_of_the_same_reservation_for_nobody() -> None:
    state = SubmissionState(
        1,
        "rsv_1",
        Status.CONFIRMED,
        "2027-01-01T00:00:00.000Z",
        "2027-01-01T00:00:00.000Z",
        pms_reservation_id="p1",
        pms_record={"notes": "Maria", "codes": {"accessCode": ["4711"]}, "finances": {"totalPaid": 9, "who": "Maria"}},
    )
    guest: dict[str, Any] = {
        "guest": {"name": "Maria", "email": "m@x.y", "phone": 123},
        "arrivalEstimatedTime": "Maria",
    }
    record = compose_record(STAY | guest, state)
    nobody = compose_record(anonymous_request(STAY | guest), SubmissionState(*_without_pms(state)))
    assert anonymous_record(record) == nobody


def _without_pms(state: SubmissionState) -> tuple[Any, ...]:
    return (
        state.id,
        state.request_id,
        state.status,
        state.created_at,
        state.updated_at,
        state.cancelled_at,
        state.pms_reservation_id,
    )


def test_a_problem_keeps_its_code_and_nothing_that_was_said() -> None:
    problem = {
        "code": "sold_out",
        "title": "No room",
        "status": 409,
        "detail": "Maria",
        "errors": ["Maria"],
        "pms": "Maria",
    }
    kept = anonymous_problem(problem)
    assert (kept["code"], kept["status"]) == ("sold_out", 409)
    assert "Maria" not in repr(kept)


def test_an_event_keeps_its_form() -> None:
    cancellation = {"status": "REFUSED", "reason": "Maria is ill", "problem": {"code": "no", "detail": "Maria"}}
    data = {"requestId": "rsv_1", "status": "CONFIRMED", "reservation": {"id": 1, "notes": "Maria"}}
    kept = anonymous_data({**data, "cancellation": cancellation})
    assert list(kept) == [*data, "cancellation"]
    assert "Maria" not in repr(kept)
    assert kept["cancellation"]["problem"]["code"] == "no"
