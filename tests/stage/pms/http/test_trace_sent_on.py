"""The trace of who asks, in the requests to a PMS: on every one of them, in one header, and only where it is wanted."""

from collections.abc import Sequence
from dataclasses import replace

import httpx
import pytest

from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import Request, with_trace
from forwarder.pms.port import AccountConnection
from forwarder.process.clock import SystemClock
from tests.support.pms.httpx_transport import replying
from tests.support.simulator.server import booking

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = f"{PARENT} vendor=secret"


async def sent(trace: str | None, *, traced: bool = True) -> Sequence[httpx.Request]:
    """Every request of a creation, a look-up and a cancellation."""
    requests: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(503)

    asked = replace(booking(), trace=trace)
    async with open_directory(SystemClock(), transport=replying(note), forward_traces=traced) as directory:
        pms = directory.connect(AccountConnection("acme", "generic", "https://pms.test/api", "key-7"))
        await pms.create(asked)
        await pms.find(asked)
        await pms.cancel(asked, "7")
    assert len(requests) == 3
    return requests


async def test_every_request_carries_the_traceparent_and_nothing_of_the_callers_own_systems() -> None:
    for request in await sent(TRACE):
        assert request.headers.get_list("traceparent") == [PARENT]
        assert "tracestate" not in request.headers


@pytest.mark.parametrize(("trace", "traced"), [(None, True), (TRACE, False)])
async def test_without_a_trace_or_where_it_is_not_wanted_nothing_is_added(trace: str | None, traced: bool) -> None:
    for request in await sent(trace, traced=traced):
        assert "traceparent" not in request.headers


def test_what_an_adapter_signed_is_sent_as_it_was() -> None:
    signed = Request(
        "POST", "https://pms.test/api", ((b"X-Signature", b"of all"), (b"TraceParent", b"its own")), b"{}", "a=1"
    )
    assert with_trace(signed, TRACE) == replace(
        signed, headers=((b"X-Signature", b"of all"), (b"traceparent", PARENT.encode()))
    )
