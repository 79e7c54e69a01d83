"""A bulk that was not answered can be sent again: the error has its items under the keys that they were sent with."""

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import httpx
import pytest

from forwarder.topics.codec import decode_submission
from reservation_forwarder_client import (
    ForwarderClient,
    ForwarderError,
    GeneralItem,
    GeneralReservation,
    NotAllowed,
    Problem,
    RetryPolicy,
    Submission,
    Unavailable,
    Unexpected,
)
from tests.support.memory.clock import ManualClock
from tests.support.stages import bodies
from tests.support.stages.client_of_stages import client_of
from tests.support.stages.http_stages import Stages, stages
from tests.support.stages.scripted_service import ScriptedService, problem
from tools.contracts.answers import response_examples

ONCE = RetryPolicy(total_seconds=0)
RECEIPT = response_examples()["submissionAccepted"]["data"]


def item(number: int) -> GeneralItem:
    return GeneralItem(cast("GeneralReservation", {**bodies.GENERAL, "propertyId": 5000 + number}))


def answered(count: int) -> httpx.Response:
    return httpx.Response(200, json={"data": {"accepted": count, "refused": 0, "results": [RECEIPT] * count}})


@pytest.fixture
async def house() -> AsyncIterator[Stages]:
    async with stages() as built:
        yield built


class LosesAnswers(httpx.AsyncBaseTransport):
    """Every other request is heard, and its answer is lost."""

    def __init__(self, service: httpx.AsyncBaseTransport) -> None:
        self._service = service
        self._lost = itertools.cycle([False, True])

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._service.handle_async_request(request)
        if next(self._lost):
            raise httpx.ReadError("reset by peer")
        return answer


async def test_it_is_sent_again_with_the_rest_and_nothing_is_submitted_twice(house: Stages) -> None:
    left: Iterator[GeneralItem] = map(item, range(5))
    told: list[Submission | Problem] = []
    client = client_of(house, LosesAnswers(httpx.ASGITransport(house.app)))
    async with client:
        with pytest.raises(Unavailable) as raised:
            told += [one async for one in client.submit_many(left, bulk_size=2)]
        assert len(raised.value.items) == 2
        assert all(one.idempotency_key for one in raised.value.items)
        again = client.submit_many([*raised.value.items, *left], bulk_size=5)
        told = [one async for one in again]
    assert all(isinstance(one, Submission) for one in told)
    requested = {one.request_id for one in told if isinstance(one, Submission)}
    assert len(requested) == 3
    submitted = [decode_submission(one).request_id for one in house.requests]
    assert len(submitted) == len(set(submitted)) == 5
    assert requested < set(submitted)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.ConnectError("refused"), Unavailable),
        (problem(401, "unauthenticated"), NotAllowed),
        (answered(1), Unexpected),
    ],
)
def test_an_error_has_what_was_taken_and_nothing_was_told_of(
    answer: httpx.Response | Exception, kind: type[ForwarderError]
) -> None:
    answers: list[httpx.Response | Exception] = [answered(2), answer]
    sent: list[Any] = []

    def answers_one(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        one = answers.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    with ForwarderClient(
        "http://forwarder.test",
        token="t",
        workspace="w",
        account="a",
        transport=httpx.MockTransport(answers_one),
        retry_policy=ONCE,
    ) as client:
        told = client.submit_many(map(item, range(9)), bulk_size=2)
        assert [isinstance(next(told), Submission) for _ in range(2)] == [True, True]
        with pytest.raises(kind) as raised:
            next(told)
    assert [one.reservation["propertyId"] for one in raised.value.items] == [5002, 5003]
    assert [one.idempotency_key for one in raised.value.items] == [one["idempotencyKey"] for one in sent[1]]


async def test_an_error_of_another_call_has_no_items() -> None:
    async with ScriptedService(ManualClock(), httpx.ConnectError("refused")).client(ONCE) as client:
        with pytest.raises(Unavailable) as raised:
            await client.submission("rsv_x")
    assert raised.value.items == ()
