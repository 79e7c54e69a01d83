"""One caller's trace, from the request through log and store to the PMS, the result event and the webhook; and the name that every
answer has."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from forwarder.assembly.backend import open_backend
from forwarder.operate.tenants.accounts import Accounts
from forwarder.process.clock import SystemClock
from forwarder.simulator.world import World
from forwarder.tenancy.port import Account
from forwarder_pms_kit.simulators import simulator_app
from tests.support.backends import Backend, slow_on
from tests.support.deployment.deployment import PATIENCE_SECONDS, Deployment, Site, booking, deploy
from tests.support.deployment.site import settings_of
from tests.support.network.receiver import Receiver, receiver
from tests.support.simulator.server import served

CONTRACT: Final = Path(__file__).resolve().parents[2] / "schemas" / "openapi.json"

BOOKS: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CANCELS: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE: Final = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"


@dataclass
class Journey:
    """A forwarder, and what its PMS and its webhook were told: by the method and the last part of the path, and by event."""

    deployment: Deployment
    webhook: Receiver
    asked: defaultdict[str, list[Mapping[str, str]]] = field(default_factory=lambda: defaultdict(list))

    async def events(self, request_id: str, count: int) -> list[Mapping[str, str]]:
        """The headers of the first so many result events."""
        found: list[Mapping[str, str]] = []
        settings = settings_of(self.deployment.site)
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            open_backend(settings) as backend,
            backend.log.tail(settings.topics.results, from_beginning=True) as tail,
        ):
            while len(found) < count:
                messages = await tail.receive(max_messages=100, wait_seconds=0.1)
                headers = [{name: value.decode() for name, value in each.message.headers} for each in messages]
                found += [each for each in headers if each["ce_subject"] == request_id]
        return found

    async def lines(self, event: str, **having: object) -> list[dict[str, Any]]:
        """The log lines of any process, once there is one."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                written = "".join(log.read_text() for log in self.deployment.site.directory.glob("*.log"))
                lines = [json.loads(line) for line in written.splitlines() if f'"{event}"' in line]
                found = [line for line in lines if line["event"] == event and having.items() <= line.items()]
                if found:
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
async def journey(site: Site, backend: Backend) -> AsyncIterator[Journey]:
    inside = {} if backend == "embedded" else {"FORWARDER_WEBHOOK_PRIVATE_ADDRESSES": "true"}
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(deploy(replace(site, settings={**site.settings, **inside})))
        if backend == "distributed":
            running.add("notifier")
            await running.start()
        made = Journey(running, await stack.enter_async_context(receiver()))
        pms = await stack.enter_async_context(overheard(made))
        async with open_backend(settings_of(site)) as opened:
            account = Account("generic", "demo", "generic", f"{pms}/generic/generic", "")
            await Accounts(opened.tenancy, opened.sealer).add(account, "secret")
        hook = await running.client.post(
            f"{running.url('notifier')}/api/v1/vrs/webhooks",
            json={"url": made.webhook.url},
            headers=running.headers("generic"),
        )
        assert hook.status_code == 201, hook.text
        yield made


@asynccontextmanager
async def overheard(journey: Journey) -> AsyncIterator[str]:
    """The address of simulated PMSs whose requests' headers are noted."""
    with World(SystemClock(), calendars=False) as world:
        app = simulator_app(world)

        async def noting(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                journey.asked[scope["method"]].append(headers)
            await app(scope, receive, send)

        async with served(noting) as url:
            yield url


@slow_on("embedded")
async def test_a_trace_reaches_whatever_comes_of_its_request(journey: Journey) -> None:
    request_id = await _the_callers_trace_is_kept_to_the_end(journey)
    await _a_cancellation_is_part_of_the_trace_of_who_cancels(journey, request_id)
    await _what_is_no_trace_is_passed_over(journey)
    await _every_answer_has_a_request_id(journey.deployment)


async def _the_callers_trace_is_kept_to_the_end(journey: Journey) -> str:
    answer = await journey.deployment.submit(
        "generic", booking(1), traceparent=BOOKS, tracestate=STATE, Prefer="wait=30", **{"Request-Id": "checkout-1"}
    )
    assert answer.status_code == 201, answer.text
    request_id: str = answer.json()["data"]["requestId"]
    (asked,) = journey.asked.pop("POST")
    assert asked["traceparent"] == BOOKS
    assert "tracestate" not in asked
    (event,) = await journey.events(request_id, 1)
    assert (event["traceparent"], event["tracestate"]) == (BOOKS, STATE)
    await journey.webhook.has_answered(f"{request_id}.1")
    posted = journey.webhook.answered[0].headers
    assert (posted["traceparent"], posted["tracestate"]) == (BOOKS, STATE)
    trace_id = BOOKS[3:35]
    (accepted,) = await journey.lines("submission.accepted", request_id=request_id)
    assert (accepted["trace_id"], accepted["http_request_id"]) == (trace_id, "checkout-1")
    await journey.lines("push.recorded", request_id=request_id, trace_id=trace_id)
    await journey.lines("webhook.posted", event_id=f"{request_id}.1", trace_id=trace_id)
    return request_id


async def _a_cancellation_is_part_of_the_trace_of_who_cancels(journey: Journey, request_id: str) -> None:
    answer = await journey.deployment.cancel("generic", request_id, traceparent=CANCELS, Prefer="wait=30")
    assert answer.status_code == 200, answer.text
    assert [asked["traceparent"] for method in ("POST", "DELETE") for asked in journey.asked.pop(method, ())] == [
        CANCELS
    ]
    assert (await journey.events(request_id, 2))[1]["traceparent"] == CANCELS
    await journey.webhook.has_answered(f"{request_id}.2")
    posted = journey.webhook.answered[1].headers
    assert (posted["traceparent"], posted.get("tracestate")) == (CANCELS, None)


async def _what_is_no_trace_is_passed_over(journey: Journey) -> None:
    answer = await journey.deployment.submit(
        "generic", booking(2), traceparent="00-nonsense", tracestate=STATE, Prefer="wait=30"
    )
    assert answer.status_code == 201, answer.text
    request_id = answer.json()["data"]["requestId"]
    (asked,) = journey.asked.pop("POST")
    (event,) = await journey.events(request_id, 1)
    await journey.webhook.has_answered(f"{request_id}.1")
    for headers in (asked, event, journey.webhook.answered[2].headers):
        assert not {"traceparent", "tracestate"} & set(headers)


async def _every_answer_has_a_request_id(deployment: Deployment) -> None:
    """Of every operation of the contract: what it says to nobody, to its caller who asks for nonsense, and to a wrong method."""
    seen = set()
    for path, operations in json.loads(CONTRACT.read_text())["paths"].items():
        for method in [*operations, "trace"]:
            address = path.replace("{", "").replace("}", "")
            for headers in ({}, deployment.headers("generic"), deployment.headers("nobody")):
                for content in (b"", b"{"):
                    url = deployment.url(_role(deployment, address)) + address
                    answer = await deployment.client.request(method, url, headers=headers, content=content)
                    seen.add(answer.status_code)
                    _is_named(answer)
    for url in ("/", "/nowhere", "/api/v1/vrs/reservations/?x=1", "/healthz", "/readyz", "/metrics", "/docs"):
        _is_named(await deployment.client.get(deployment.url("ingress") + url))
    assert seen >= {200, 400, 401, 404, 405}


def _role(deployment: Deployment, path: str) -> str:
    """Which process has that address."""
    if "up" in deployment.ports:
        return "up"
    if "/webhooks" in path:
        return "notifier"
    return "query" if path.startswith("/api/vrs") or "/submissions" in path else "ingress"


def _is_named(answer: httpx.Response) -> None:
    name = answer.headers["request-id"]
    assert name
    if answer.headers["content-type"] == "application/problem+json":
        assert answer.json()["httpRequestId"] == name
