"""The open PMS contract on the wire: what a look-up tells."""

from typing import Any

import pytest

from forwarder.reservation.outcome import Absent, Confirmed, Deferred
from tests.support.cases import for_each
from tests.support.pms.kinds.open_pms import found
from tests.support.simulator.server import booking


def item(status: str | None = None, **more: Any) -> dict[str, Any]:
    stated = {} if status is None else {"status": status}
    return {"id": 5, "reference": booking().reference} | stated | more


@for_each(
    "items",
    [
        [item()],
        [item("Confirmed")],
        [item(reference="other"), item("CONFIRMED")],
        [item("REJECTED", id=4), item("CONFIRMED")],
        [item("CANCELLED", id=4), item("CONFIRMED")],
    ],
)
async def test_what_is_found_is_confirmed(items: list[dict[str, Any]]) -> None:
    assert await found({"data": items}) == Confirmed("5", {})


@pytest.mark.parametrize("items", [[], [item("REJECTED")], [item("declined"), item("REJECTED")]])
async def test_what_is_not_there_or_was_refused_is_absent(items: list[dict[str, Any]]) -> None:
    assert await found({"data": items}) == Absent()


async def test_what_was_cancelled_since_is_neither_made_again_nor_confirmed() -> None:
    outcome = await found({"data": [item("CANCELLED")]})
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "cancelled_in_pms"


@for_each(
    "body",
    [
        {},
        {"data": None},
        {"data": {}},
        {"data": [{"id": 5}]},
        {"data": [item(reference="other")]},
        {"data": ["5"]},
        {"data": [], "success": False},
        {"data": [], "errorMessage": "timed out"},
        {"data": [item("PENDING")]},
        {"data": [item(id=None)]},
        [],
        b"",
        b"<html>",
    ],
)
async def test_a_list_that_may_not_have_been_searched_decides_nothing(body: object) -> None:
    outcome = await found(body)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "pms_answer_not_understood"


@for_each("status", [201, 302, 401, 404, 429, 500, 503])
async def test_a_lookup_that_fails_is_put_off(status: int) -> None:
    assert isinstance(await found({"data": []}, status), Deferred)
