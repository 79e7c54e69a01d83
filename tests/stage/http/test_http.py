"""What every HTTP process shares: each error is a problem, each request is measured, and nothing is given away."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import structlog
from prometheus_client import REGISTRY
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from forwarder.http.messages import Response, header_map, problem_response
from forwarder.http.server import HttpApp
from forwarder.observability.logging import merge_log_context
from forwarder.observability.metrics import DEFERRED
from forwarder.reservation.problems import FieldFault, Problem
from tests.support.memory.clock import ManualClock
from tests.support.stages.http_stages import Stages, stages

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CARD_NUMBER = "4111111111111111"


class _CardError(Exception):
    pass


async def _fine(_request: Request) -> Response:
    return Response(200, b"{}")


async def _broken(_request: Request) -> Response:
    raise _CardError(f"cannot read {CARD_NUMBER}") from ValueError(CARD_NUMBER)


async def _left(_request: Request) -> Response:
    raise ClientDisconnect


async def _teapot(_request: Request) -> Response:
    raise HTTPException(418)


async def _half(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise _CardError


ROUTES = [
    Route("/fine/{id}", _fine),
    Route("/fine/{id}", _fine, methods=["PUT"]),
    Route("/broken", _broken),
    Route("/left", _left),
    Route("/teapot", _teapot),
    Mount("/mounted", routes=[Route("/inner", _fine)]),
]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = HttpApp(ROUTES, ManualClock())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://forwarder.test") as client:
        yield client


def _count(route: str, status: int, method: str = "GET") -> float:
    DEFERRED.flush()
    labels = {"route": route, "method": method, "status": str(status)}
    return REGISTRY.get_sample_value("forwarder_http_request_seconds_count", labels) or 0


async def test_an_unknown_path_is_a_404_problem(client: httpx.AsyncClient) -> None:
    before = _count("unmatched", 404)
    answer = await client.get("/nothing/here")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "success": False,
        "type": "/problems/not_found",
        "title": "Not found",
        "status": 404,
        "detail": "Unknown path.",  # nor a page that says what there is
        "code": "not_found",
        "httpRequestId": answer.headers["request-id"],
    }
    assert _count("unmatched", 404) == before + 1


async def test_no_redirect_to_another_spelling(client: httpx.AsyncClient) -> None:
    assert (await client.get("/broken/")).status_code == 404


@pytest.mark.parametrize("path", ["/left%0A", "/fine/1%0A", "/mounted/inner%0A"])
async def test_a_line_break_after_a_path_makes_it_another(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_a_wrong_method_is_a_405_problem_that_says_which_are_right(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/fine/1")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD, PUT"
    assert answer.json()["code"] == "method_not_allowed"


async def test_the_methods_of_several_stages_at_one_path_are_named_together() -> None:
    house: Stages
    async with stages() as house:
        answer = await house.client.delete("/api/v1/vrs/reservations")
        assert answer.headers["allow"] == "GET, HEAD, POST"


async def test_another_refusal_of_the_framework_is_a_fault_of_ours(client: httpx.AsyncClient) -> None:
    answer = await client.get("/teapot")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"


@pytest.mark.parametrize("name", ["Request-Id", "X-Request-Id"])
async def test_a_request_keeps_the_name_that_its_caller_gave_it(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get("/fine/1", headers={name: "checkout-7f3a:1"})
    assert answer.headers["request-id"] == "checkout-7f3a:1"
    refused = await client.get("/nothing", headers={name: "checkout-7f3a:2"})
    assert refused.json()["httpRequestId"] == refused.headers["request-id"] == "checkout-7f3a:2"


@pytest.mark.parametrize(
    "name", ["", "two words", '"quoted"', "<script>", "x" * 129, CARD_NUMBER, "card-4111.1111.1111.1111"]
)
async def test_a_name_that_is_no_word_or_a_card_is_replaced(client: httpx.AsyncClient, name: str) -> None:
    answers = [await client.get("/fine/1", headers={"Request-Id": name}) for _ in range(2)]
    given = [answer.headers["request-id"] for answer in answers]
    assert all(re.fullmatch("req_[0-9a-f]{24}", each) for each in given)
    assert given[0] != given[1]


async def test_every_log_line_of_a_request_has_its_name(client: httpx.AsyncClient) -> None:
    with structlog.testing.capture_logs(processors=[merge_log_context]) as logged:
        answer = await client.get("/broken")
    assert {entry.get("http_request_id") for entry in logged} == {answer.headers["request-id"]}


@pytest.mark.parametrize(
    ("given", "trace_id"),
    [
        ([TRACEPARENT], TRACEPARENT[3:35]),
        ([TRACEPARENT, TRACEPARENT], TRACEPARENT[3:35]),
        (["nonsense"], None),
        ([TRACEPARENT, TRACEPARENT[:-1] + "0"], None),
        ([], None),
    ],
)
async def test_every_log_line_of_a_request_has_the_id_of_its_trace(
    client: httpx.AsyncClient, given: list[str], trace_id: str | None
) -> None:
    with structlog.testing.capture_logs(processors=[merge_log_context]) as logged:
        await client.get("/broken", headers=[("traceparent", each) for each in given])
    assert {entry.get("trace_id") for entry in logged} == {trace_id}


async def test_what_nobody_foresaw_is_a_500_with_a_reference_and_nothing_else(client: httpx.AsyncClient) -> None:
    with structlog.testing.capture_logs() as logged:
        answer = await client.get("/broken")
    assert answer.status_code == 500
    problem = answer.json()
    assert problem["code"] == "internal_error"
    [failure] = [entry for entry in logged if entry["event"] == "request.failed"]
    assert problem["httpRequestId"] == answer.headers["request-id"]
    assert problem["httpRequestId"] in problem["detail"]
    assert failure["errors"] == ["_CardError", "ValueError"]
    assert any("_broken" in frame for frame in failure["frames"])
    assert CARD_NUMBER not in f"{answer.text}{answer.headers}{logged}"
    assert "Traceback" not in answer.text


async def test_a_client_that_left_is_answered_nothing() -> None:
    before = _count("/left", 499)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/left", "headers": [], "query_string": b"", "root_path": ""}
    await HttpApp(ROUTES, ManualClock())(scope, _nothing, send)
    assert sent == []
    assert _count("/left", 499) == before + 1


async def test_an_answer_that_broke_off_is_not_continued() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = HttpApp([Mount("/", app=_half)], ManualClock())
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"", "root_path": ""}
    with pytest.raises(_CardError):
        await app(scope, _nothing, send)
    assert [message["type"] for message in sent] == ["http.response.start"]


async def test_requests_are_measured_by_the_routes_template(client: httpx.AsyncClient) -> None:
    before = _count("/fine/{id}", 200)
    for number in range(3):
        await client.get(f"/fine/{number}")
    assert _count("/fine/{id}", 200) == before + 3
    odd = _count("unmatched", 404, "other")
    await client.request("BREW", "/nothing")
    assert _count("unmatched", 404, "other") == odd + 1


class _Direct:
    """Implements `DirectEndpoint`."""

    def __init__(self, *, status: int = 200, error: Exception | None = None) -> None:
        self._status = status
        self._error = error

    async def respond(self, _scope: Scope, _receive: Receive) -> Response:
        if self._error is not None:
            raise self._error
        return Response(self._status, b"{}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.respond(scope, receive)
        await response(scope, receive, send)


DIRECT = [
    Route("/direct/{id}", _fine, methods=["GET"]),
    Route("/direct/one", _Direct(status=201), methods=["GET", "POST"]),
    Route("/direct/broken", _Direct(error=_CardError(CARD_NUMBER)), methods=["POST"]),
    Route("/direct/left", _Direct(error=ClientDisconnect()), methods=["POST"]),
]


async def _called(method: str, path: str) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "root_path": ""}
    await HttpApp(DIRECT, ManualClock())(scope, _nothing, send)
    return sent


async def test_what_responds_past_the_framework_is_measured_as_all_is() -> None:
    before = _count("/direct/one", 201, "POST")
    head, body = await _called("POST", "/direct/one")
    assert (head["status"], body["body"]) == (201, b"{}")
    assert _count("/direct/one", 201, "POST") == before + 1


async def test_it_is_found_where_the_router_would_find_it() -> None:
    """Of two routes that take a call, the first."""
    assert (await _called("GET", "/direct/one"))[0]["status"] == 200
    assert (await _called("POST", "/direct/two"))[0]["status"] == 405
    head, problem = await _called("DELETE", "/direct/one")
    assert (head["status"], b"GET, HEAD, POST" in problem["body"]) == (405, True)


async def test_its_failure_is_a_500_that_gives_nothing_away() -> None:
    before = _count("/direct/broken", 500, "POST")
    with structlog.testing.capture_logs() as logged:
        head, body = await _called("POST", "/direct/broken")
    assert head["status"] == 500
    assert [entry["route"] for entry in logged if entry["event"] == "request.failed"] == ["/direct/broken"]
    assert CARD_NUMBER not in f"{head}{body}{logged}"
    assert _count("/direct/broken", 500, "POST") == before + 1


async def test_nobody_is_answered_who_left_it() -> None:
    before = _count("/direct/left", 499, "POST")
    assert await _called("POST", "/direct/left") == []
    assert _count("/direct/left", 499, "POST") == before + 1


def test_header_lines_of_one_name_are_joined() -> None:
    scope = {"headers": [(b"prefer", b"a"), (b"host", b"h"), (b"prefer", b"b")]}
    assert header_map(scope) == {"prefer": "a, b", "host": "h"}


def test_the_same_header_line_twice_is_one() -> None:
    twice = [
        (b"workspaceid", b"demo"),
        (b"prefer", b"a"),
        (b"workspaceid", b"demo"),
        (b"prefer", b"b"),
        (b"prefer", b"a"),
    ]
    assert header_map({"headers": twice}) == {"workspaceid": "demo", "prefer": "a, b"}


def test_a_problem_in_full() -> None:
    problem = Problem(
        "odd", "Odd", 409, "It is odd.", "rsv_1", (FieldFault("/a~1b", "wrong", "must be even"),), {"more": 1}
    )
    answer = problem_response(problem)
    assert (answer.status, answer.media_type) == (409, b"application/problem+json")
    assert answer.body == (
        b'{"success":false,"type":"/problems/odd","title":"Odd","status":409,"detail":"It is odd.","code":"odd",'
        b'"requestId":"rsv_1","instance":"/api/v1/vrs/submissions/rsv_1",'
        b'"errors":[{"pointer":"/a~1b","code":"wrong","detail":"must be even"}],'
        b'"more":1}'
    )


@pytest.mark.parametrize(
    ("status", "header"), [(401, (b"www-authenticate", b"Bearer")), (503, (b"retry-after", b"9")), (409, None)]
)
def test_what_goes_with_a_status(status: int, header: tuple[bytes, bytes] | None) -> None:
    answer = problem_response(Problem("code", "Title", status, "Detail."), (b"x", b"y"), retry_after_seconds=9)
    assert answer.headers == ((b"x", b"y"), *([header] if header else []))


async def _nothing() -> Any:
    raise AssertionError("nothing is read")


async def _ignore(_message: Any) -> None:
    pass


async def test_links_of_problems_begin_with_the_public_url() -> None:
    told = Problem("room_unavailable", "Taken", 409, "Taken.", "rsv_1").as_json()

    async def status(_request: Request) -> Response:
        return Response(200, to_json({"problem": told, "notes": '"type":"/problems/x"'}))

    routes = [Route("/status", status)]
    for public, begins in (("https://bookings.example", "https://bookings.example/"), ("", "/")):
        transport = httpx.ASGITransport(HttpApp(routes, ManualClock(), public_url=public))
        async with httpx.AsyncClient(transport=transport, base_url="http://forwarder.test") as client:
            assert (await client.get("/nowhere")).json()["type"] == f"{begins}problems/not_found"
            found = (await client.get("/status")).json()
            assert found["problem"]["type"] == f"{begins}problems/room_unavailable"
            assert found["problem"]["instance"] == f"{begins}api/v1/vrs/submissions/rsv_1"
            assert found["notes"] == '"type":"/problems/x"'
