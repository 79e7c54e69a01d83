"""The Idempotency-Key: the same submission for ever within its account, and another body under it refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, get_args

import httpx
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from forwarder.ingress.message import IngressSettings
from forwarder.reservation.outcome import Status
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import MODELS
from tests.support.memory.clock import settle
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import (
    BOOKING_ENGINE_PATH,
    GENERAL_PATH,
    OTHER_ACCOUNT,
    OTHER_WORKSPACE,
    Stages,
    stages,
)

SOLD_OUT = Problem("room_unavailable", "The room is taken", 409, "The nights were taken meanwhile.")
ASYNC = {"Prefer": "respond-async"}
WAIT = {"Prefer": "wait=5"}


STRING_OR_NUMBER = {
    ("propertyId",),
    ("roomId",),
    ("paymentProviderId",),
    ("arrivalEstimatedTime",),
    ("departureEstimatedTime",),
    ("guest", "phone"),
}


def _with(body: dict[str, Any], steps: Sequence[str], given: Any) -> dict[str, Any]:
    """`body`, in which the value at `steps` is another."""
    first, *rest = steps
    return body | {first: _with(body[first], rest, given) if rest else given}


def _either(model: type[BaseModel], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields that keep a string or a number as it is, by their steps."""
    for field in model.model_fields.values():
        assert field.alias is not None
        steps = (*at, field.alias)
        for part in {field.annotation, *get_args(field.annotation)}:
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _either(part, steps)
        if _keeps(field, "7") and _keeps(field, 7):
            yield steps


def _keeps(field: FieldInfo, given: object) -> bool:
    annotated: Any = Annotated[field.annotation, "", *field.metadata]
    try:
        return bool(TypeAdapter(annotated).validate_python(given) == given)
    except ValidationError:
        return False


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


async def _post(
    house: Stages, key: str, *, path: str = BOOKING_ENGINE_PATH, headers: dict[str, str] | None = None, **changes: Any
) -> httpx.Response:
    body = (BOOKING_ENGINE if path == BOOKING_ENGINE_PATH else GENERAL) | changes
    return await house.client.post(path, json=body, headers={"Idempotency-Key": key, **(headers or {})})


def _id(answer: httpx.Response) -> Any:
    return answer.json()["data"]["requestId"]


def _assert_reused(answer: httpx.Response) -> None:
    assert answer.status_code == 422
    assert answer.json()["code"] == "idempotency_key_reused"


async def test_the_same_key_is_the_same_submission(house: Stages) -> None:
    first = await _post(house, '"order-42"')
    await house.clock.advance(1)
    again = await _post(house, '"order-42"')
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert len(house.requests) == 1


@pytest.mark.parametrize("spelling", ['"order-42"', "order-42", ' "order-42" '])
async def test_the_bare_form_is_the_same_key(house: Stages, spelling: str) -> None:
    assert _id(await _post(house, spelling)) == house.ids.derive("alpha-1", "order-42")


async def test_a_key_outlives_the_process(house: Stages) -> None:
    first = await _post(house, "order-42")
    async with stages() as restarted:
        assert _id(await _post(restarted, "order-42")) == _id(first)


async def test_another_spelling_of_the_same_body_is_the_same_request(house: Stages) -> None:
    await _post(house, "order-42")
    headers = {"Idempotency-Key": "order-42", "Content-Type": "application/json"}
    shuffled = json.dumps(dict(reversed(BOOKING_ENGINE.items())), indent=3).encode()
    again = await house.client.post(BOOKING_ENGINE_PATH, content=shuffled, headers=headers)
    assert again.status_code == 202


_SAME = [(steps, one, other) for steps in sorted(STRING_OR_NUMBER) for one, other in ((7, "7"), (7.0, 7))]


@pytest.mark.parametrize(("steps", "one", "other"), [*_SAME, (("guest", "phone"), 7.5, "7.5")])
async def test_a_number_is_the_text_that_writes_it(
    house: Stages, steps: tuple[str, ...], one: float, other: str | int
) -> None:
    path = GENERAL_PATH if steps == ("roomId",) else BOOKING_ENGINE_PATH
    base = GENERAL if path == GENERAL_PATH else BOOKING_ENGINE
    key = {"Idempotency-Key": "order-42", **ASYNC}
    for given in (one, other):
        answer = await house.client.post(path, json=_with(base, steps, given), headers=key)
        assert answer.status_code == 202, answer.text
    assert len(house.requests) == 1
    different = await house.client.post(path, json=_with(base, steps, "8"), headers=key)
    _assert_reused(different)


def test_these_are_all_fields_that_take_either() -> None:
    assert {steps for model in MODELS.values() for steps in _either(model)} == STRING_OR_NUMBER


@pytest.mark.parametrize(
    "same",
    [
        {"notes": None, "numberOfPets": None},
        {"guest": BOOKING_ENGINE["guest"] | {"phone": None}},
        {"cardDetails": None},
        {"numberOfGuests": 4.0},
    ],
)
async def test_what_means_the_same_is_the_same_request(house: Stages, same: dict[str, Any]) -> None:
    body = {
        name: given for name, given in BOOKING_ENGINE.items() if name not in {"notes", "numberOfPets", "cardDetails"}
    }
    body |= {"totalPrice": 99.3, "numberOfGuests": 4}
    body["guest"] = {name: given for name, given in body["guest"].items() if name != "phone"}
    key = {"Idempotency-Key": "order-42"}
    first = await house.client.post(BOOKING_ENGINE_PATH, json=body, headers=key)
    again = await house.client.post(BOOKING_ENGINE_PATH, json=body | same, headers=key)
    assert (first.status_code, again.status_code) == (202, 202), again.text
    assert _id(first) == _id(again)
    assert len(house.requests) == 1


@pytest.mark.parametrize("spelling", ["99.30", "99.3000", "9.93e1", "993E-1"])
async def test_a_price_is_the_amount_not_its_digits(house: Stages, spelling: str) -> None:
    first = await _post(house, "order-42", totalPrice=99.3)
    body = json.dumps(BOOKING_ENGINE | {"totalPrice": 99.3}).replace("99.3", spelling)
    headers = {"Idempotency-Key": "order-42", "Content-Type": "application/json"}
    again = await house.client.post(BOOKING_ENGINE_PATH, content=body, headers=headers)
    assert _id(again) == _id(first)


async def test_what_a_text_quotes_of_another_field_is_left_alone(house: Stages) -> None:
    await _post(house, "order-42", propertyId=7, notes='he wrote "propertyId":7')
    _assert_reused(await _post(house, "order-42", propertyId=7, notes='he wrote "propertyId":"7"'))


async def test_a_quick_repeat_with_another_body_is_refused(house: Stages) -> None:
    first = await _post(house, "order-42")
    answer = await _post(house, "order-42", numberOfGuests=3)
    _assert_reused(answer)
    assert answer.json()["requestId"] == _id(first)
    assert len(house.requests) == 1
    assert (await _post(house, "order-42")).status_code == 202


async def test_another_body_is_refused_once_the_first_was_taken_in(house: Stages) -> None:
    first = await _post(house, "order-42")
    house.ingest(house.requests[0])
    async with stages() as elsewhere:
        elsewhere.reader.rows = house.reader.rows
        _assert_reused(await _post(elsewhere, "order-42", notes="another"))
        again = await _post(elsewhere, "order-42")
        assert again.json() == first.json()
        assert not elsewhere.requests


async def test_the_same_body_for_the_other_operation_is_refused(house: Stages) -> None:
    await _post(house, "order-42")
    body = BOOKING_ENGINE
    headers = {"Idempotency-Key": "order-42", **ASYNC}
    _assert_reused(await house.client.post(GENERAL_PATH, json=body, headers=headers))


async def test_of_two_at_the_same_time_one_is_refused(house: Stages) -> None:
    house.log.acknowledging.clear()
    both = [asyncio.create_task(_post(house, "order-42", numberOfGuests=guests)) for guests in (4, 5)]
    await house.log.attempted(1)
    house.log.acknowledging.set()
    assert sorted(answer.status_code for answer in await asyncio.gather(*both)) == [202, 422]
    assert len(house.requests) == 1


async def test_the_same_twice_at_the_same_time_is_one_submission(house: Stages) -> None:
    house.log.acknowledging.clear()
    both = [asyncio.create_task(_post(house, "order-42")) for _ in range(2)]
    await house.log.attempted(2)
    house.log.acknowledging.set()
    first, second = await asyncio.gather(*both)
    assert first.json() == second.json()


async def test_after_the_log_failed_the_same_can_be_sent_again(house: Stages) -> None:
    house.log.away = True
    assert (await _post(house, "order-42")).status_code == 503
    house.log.away = False
    assert (await _post(house, "order-42")).status_code == 202
    assert len(house.requests) == 1


@pytest.mark.parametrize("headers", [OTHER_ACCOUNT, OTHER_WORKSPACE])
async def test_a_key_never_crosses_accounts(house: Stages, headers: dict[str, str]) -> None:
    first = await _post(house, "order-42")
    other = await _post(house, "order-42", headers=headers, numberOfGuests=3)
    assert other.status_code == 202
    assert _id(other) != _id(first)
    assert not house.ids.vouches("alpha-1", _id(other))


@pytest.mark.parametrize("headers", [ASYNC, WAIT])
async def test_known_and_confirmed(house: Stages, headers: dict[str, str]) -> None:
    await _post(house, "order-42", path=GENERAL_PATH, headers=ASYNC)
    stored = await house.settle(house.requests[0], Status.CONFIRMED, pms_reservation_id="pms-1")
    answer = await _post(house, "order-42", path=GENERAL_PATH, headers=headers)
    if headers is WAIT:
        assert answer.status_code == 201
        assert answer.json() == {"success": True, "data": json.loads(stored.record)}
    else:
        assert answer.status_code == 202
        assert answer.json()["data"]["status"] == "CONFIRMED"
    assert len(house.requests) == 1


async def test_known_and_rejected(house: Stages) -> None:
    await _post(house, "order-42", path=GENERAL_PATH, headers=ASYNC)
    await house.settle(house.requests[0], Status.REJECTED, problem=SOLD_OUT.as_json())
    answer = await _post(house, "order-42", path=GENERAL_PATH)
    assert answer.status_code == 409
    assert answer.json()["code"] == "room_unavailable"


@pytest.mark.parametrize("status", [Status.FAILED, Status.IN_DOUBT])
async def test_known_and_unsettled(house: Stages, status: Status) -> None:
    await _post(house, "order-42", path=GENERAL_PATH, headers=ASYNC)
    await house.settle(house.requests[0], status)
    answer = await _post(house, "order-42", path=GENERAL_PATH)
    assert answer.status_code == 202
    assert answer.json()["data"]["status"] == status


async def test_a_cancelled_reservation_was_made(house: Stages) -> None:
    await _post(house, "order-42", path=GENERAL_PATH, headers=ASYNC)
    house.ingest(house.requests[0], Status.CANCELLED, cancelled_at="2027-01-02T00:00:00.000Z")
    answer = await _post(house, "order-42", path=GENERAL_PATH)
    assert answer.status_code == 201
    assert answer.json()["data"]["status"] == "CANCELLED"


async def test_a_repeat_waits_for_the_outcome_of_the_first(house: Stages) -> None:
    await _post(house, "order-42", path=GENERAL_PATH, headers=ASYNC)
    house.ingest(house.requests[0])
    again = asyncio.create_task(_post(house, "order-42", path=GENERAL_PATH))
    await settle()
    await house.settle(house.requests[0], Status.CONFIRMED)
    assert (await again).status_code == 201
    assert len(house.requests) == 1


async def test_without_the_store_a_keyed_submission_is_not_accepted(house: Stages) -> None:
    house.reader.away = True
    answer = await _post(house, "order-42")
    assert answer.status_code == 503
    assert answer.json()["code"] == "store_unavailable"
    assert int(answer.headers["retry-after"]) >= 1
    assert not house.requests
    assert (await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE)).status_code == 202


async def test_only_so_many_recent_keys_are_remembered() -> None:
    async with stages(IngressSettings(max_keys_remembered=2)) as house:
        for key in ("one", "two", "three"):
            await _post(house, key)
        _assert_reused(await _post(house, "three", notes="another"))
        _assert_reused(await _post(house, "two", notes="another"))
        assert (await _post(house, "one", notes="another")).status_code == 202


@pytest.mark.parametrize("path", [BOOKING_ENGINE_PATH, GENERAL_PATH])
async def test_who_sends_a_key_again_is_told_so(path: str) -> None:
    """Before the worker ingested the first, and after."""
    house: Stages
    async with stages() as house:
        body = BOOKING_ENGINE if path == BOOKING_ENGINE_PATH else GENERAL
        keyed = ASYNC | {"Idempotency-Key": '"order-42"'}
        first = await house.client.post(path, json=body, headers=keyed)
        assert "idempotent-replayed" not in first.headers
        again = await house.client.post(path, json=body, headers=keyed)
        house.ingest(house.requests[0], Status.CONFIRMED)
        later = await house.client.post(path, json=body, headers=keyed | WAIT)
        assert [each.headers["idempotent-replayed"] for each in (again, later)] == ["true", "true"]
        assert (first.status_code, again.status_code, later.status_code) == (202, 202, 201)
        other = await house.client.post(path, json=body | {"propertyId": 77}, headers=ASYNC)
        assert "idempotent-replayed" not in other.headers
