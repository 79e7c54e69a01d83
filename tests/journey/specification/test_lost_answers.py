"""A client that knows nothing but the specification, and a network that loses every third answer after the request went through:
what was wanted is made, once each, and what only looks alike is made too."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest
from pydantic_core import from_json

from forwarder.reservation.submission import DEFAULT_WINDOW_SECONDS
from tests.journey.specification.client import ReservationService
from tests.journey.specification.losing_proxy import LosingProxy, losing_proxy
from tests.support.backends import only
from tests.support.deployment.deployment import Deployment
from tests.support.profile import PROFILE, TIMEOUT_SECONDS
from tests.support.stages.bodies import ABSENT, BOOKING_ENGINE, GENERAL, changed

WANTED = {"change": 100, "full": 500, "long": 10_000}[PROFILE]
CALLERS = 16
ACCOUNT = "wanted"


@dataclass(frozen=True, slots=True)
class Wish:
    """A reservation that somebody wants, by the operation of a booking engine or by the general one."""

    by_engine: bool
    body: Mapping[str, Any]


def _wishes(count: int) -> Iterator[Wish]:
    """They differ in one thing each from the example, and so among themselves in two at the most: many in one alone."""
    in_one_thing: Sequence[Callable[[int], Mapping[str, Any]]] = (
        lambda number: {"propertyId": 2000 + number},
        lambda number: {"roomId": f"R{number}"},
        lambda number: {
            "departureDate": (date(2031, 6, 3) + timedelta(days=number // 6 % 360)).isoformat(),
            "roomId": f"{BOOKING_ENGINE['roomId']}{'+' * (number // 2160)}",  # no stay has more than a year
        },
        lambda number: {"guest.name": f"Ana Ruiz {number}", "guest.firstName": f"Ana {number}"},
        lambda number: {"totalPrice": 500.1 + number},
        lambda number: {"transactionId": f"pi_{number}"},
    )
    examples = {
        True: changed(BOOKING_ENGINE, "transactionId", ABSENT),
        False: {**GENERAL, "propertyId": BOOKING_ENGINE["propertyId"], "roomId": BOOKING_ENGINE["roomId"]},
    }
    for number in range(count):
        thing, by_engine = number % len(in_one_thing), number // len(in_one_thing) % 2 == 0
        by_engine = by_engine or thing == len(in_one_thing) - 1  # the general operation has no transactions
        body = {**examples[by_engine], "arrivalDate": "2031-06-01", "departureDate": "2031-06-03"}
        for path, value in in_one_thing[thing](number).items():
            body = changed(body, path, value)
        yield Wish(by_engine, body)


def _send(service: ReservationService, wish: Wish) -> None:
    if wish.by_engine:
        service.create_for_booking_engine(wish.body)
    else:
        service.create(wish.body)


async def _open_service(deployment: Deployment, proxy: LosingProxy) -> ReservationService:
    """As an account sees it that nobody set up in any special way."""
    await deployment.add_account(ACCOUNT, duplicate_window_seconds=DEFAULT_WINDOW_SECONDS)
    return ReservationService(proxy.url, deployment.token, "demo", ACCOUNT)


async def _make(service: ReservationService) -> None:
    """Have all wishes sent by concurrent callers, each until it is answered."""
    loop = asyncio.get_running_loop()
    callers = ThreadPoolExecutor(CALLERS)
    try:
        sending = [loop.run_in_executor(callers, partial(_send, service, wish)) for wish in _wishes(WANTED)]
        await asyncio.gather(*sending)
    finally:
        callers.shutdown(
            wait=False, cancel_futures=True
        )  # to wait would stop the proxy, which runs in this very thread


async def _kill_worker_in_the_middle(deployment: Deployment, proxy: LosingProxy) -> None:
    await proxy.has_answered("POST", WANTED // 2)
    worker = deployment.processes["worker"]
    await asyncio.to_thread(worker.kill)
    await asyncio.to_thread(worker.start)


async def _assert_all_made_once(deployment: Deployment, proxy: LosingProxy, service: ReservationService) -> None:
    """Nothing of what was accepted waits any more, heard of or not; the PMS made what was wanted, and the list says so."""
    accepted = [*{from_json(answer)["data"]["requestId"] for answer in proxy.answers["POST"]}]
    for first in range(0, len(accepted), CALLERS):
        asked = accepted[first : first + CALLERS]
        await asyncio.gather(*(deployment.settled(ACCOUNT, request_id) for request_id in asked))
    assert (await deployment.made())["made"] == WANTED
    records = await asyncio.to_thread(lambda: [*service.reservations()])
    assert [record["status"] for record in records] == ["CONFIRMED"] * WANTED
    assert proxy.lost > WANTED // 3


@pytest.mark.timeout(TIMEOUT_SECONDS)
@only("embedded")
async def test_what_was_wanted_is_made_once(deployment: Deployment) -> None:
    url = deployment.url("up")
    async with losing_proxy({"POST": [url], "GET": [url]}) as proxy:
        service = await _open_service(deployment, proxy)
        await _make(service)
        await _assert_all_made_once(deployment, proxy, service)


@pytest.mark.slow  # the one above loses answers too, and `test_main_job.py` kills a worker
@pytest.mark.timeout(TIMEOUT_SECONDS)
@only("distributed")
async def test_also_by_two_ingresses_and_a_worker_that_is_killed(deployment: Deployment) -> None:
    deployment.add("ingress", role="another ingress")
    await deployment.start()
    ingresses = [deployment.url(role) for role in ("ingress", "another ingress")]
    async with losing_proxy({"POST": ingresses, "GET": [deployment.url("query")]}) as proxy:
        service = await _open_service(deployment, proxy)
        await asyncio.gather(_make(service), _kill_worker_in_the_middle(deployment, proxy))
        await _assert_all_made_once(deployment, proxy, service)
