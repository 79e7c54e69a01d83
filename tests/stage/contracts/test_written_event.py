"""The data of an event is written out once, in parts that make it up again, whatever they hold."""

from typing import Any

from pydantic_core import from_json, to_json

from forwarder.reservation.outcome import Cancellation, CancellationStatus, Status
from forwarder.reservation.record import ResultEvent, result_data
from tests.support.cases import for_each

MISLEADING = '","reservation":null,"'


def _event(account: str, record: dict[str, Any], cancellation: Cancellation | None = None) -> ResultEvent:
    data = result_data(
        request_id="rsv_1",
        workspace_id=MISLEADING,
        account_id=account,
        status=Status.CONFIRMED,
        record=record,
        cancellation=cancellation,
    )
    return ResultEvent("rsv_1", 1, Status.CONFIRMED, "acc:7", "2027-01-01T00:00:00.000Z", data)


@for_each("account", ["acc", "test~acc", MISLEADING])
@for_each("problem", [None, {"detail": MISLEADING, "reservation": None}])
@for_each("record", [{}, {"notes": MISLEADING, "reservation": None, "guest": {"name": 'Zoë "Z"'}}])
def test_the_parts_make_up_the_whole(account: str, record: dict[str, Any], problem: dict[str, Any] | None) -> None:
    asked = Cancellation(CancellationStatus.REFUSED, "2027-01-01T00:00:00.000Z", MISLEADING, problem)
    for cancellation in (None, asked):
        event = _event(account, record, cancellation)
        assert b"".join(event.written) == to_json(event.data)
        assert event.written.record == to_json(record)


def test_what_json_has_no_number_for_is_null() -> None:
    event = _event("acc", {"totalPrice": float("nan"), "finances": {"totalPaid": float("inf")}})
    assert from_json(b"".join(event.written))["reservation"] == {"totalPrice": None, "finances": {"totalPaid": None}}
