"""schemas/openapi.json: valid, whole, and what the service does."""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from forwarder.http.parameters import DEFAULT_LIMIT, LARGEST_ID, LARGEST_LIMIT
from forwarder.query.routes import LONGEST_PROPERTY_ID
from forwarder.reservation.checks.fields import MAX_BULK_BYTES, MAX_ITEM_BYTES, MAX_ITEMS
from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.reservation.problems import ROOM_UNAVAILABLE
from forwarder.reservation.request import MAX_BODY_BYTES, MAX_NIGHTS
from forwarder.reservation.submission import MAX_DEADLINE_SECONDS
from tests.support.cases import for_each
from tests.support.contracts.http_contract import HttpContract
from tests.support.stages.bodies import BOOKING_ENGINE, GENERAL
from tests.support.stages.http_stages import BOOKING_ENGINE_PATH, GENERAL_PATH, HEADERS, Stages, stages
from tools.contracts import openapi as contract
from tools.contracts.models import Mismatch
from tools.contracts.openapi import openapi
from tools.contracts.written import written

CONTRACT = HttpContract()
JSON = {"Content-Type": "application/json"}


def test_it_is_openapi_3_1() -> None:
    document = openapi()
    validate(document)
    assert document["openapi"].startswith("3.1.")


async def test_its_paths_are_the_routes_and_the_routes_its_paths() -> None:
    house: Stages
    async with stages() as house:
        routed = {
            (route.path, method)
            for route in house.routes
            if isinstance(route, Route) and route.include_in_schema
            for method in (route.methods or ())
            if method != "HEAD"
        }
    described = {(path, method.upper()) for path, methods in openapi()["paths"].items() for method in methods}
    assert routed == described


def _examples(part: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Each example of the document with the schema that it is of."""
    if isinstance(part, dict):
        schema = part.get("schema")
        if isinstance(schema, dict):
            if "example" in part:
                yield schema, part["example"]
            for example in part.get("examples", {}).values():
                yield schema, CONTRACT.resolved(example)["value"]
        for inner in part.values():
            yield from _examples(inner)


def test_its_examples_are_what_they_are_examples_of() -> None:
    found = list(_examples(openapi()))
    assert len(found) > 100
    for schema, example in found:
        CONTRACT.validate(schema, example)


def test_every_operation_has_an_example_and_a_name_of_its_own() -> None:
    operations = [one for methods in openapi()["paths"].values() for one in methods.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    for one in operations:
        for holder in (one.get("requestBody"), *one["responses"].values()):
            for media_type, medium in (holder or {}).get("content", {}).items():
                assert media_type == "text/html" or "About" in one["tags"] or medium["examples"], one["operationId"]


def test_every_field_of_a_request_is_described() -> None:
    bodies = ("BookingEngineReservation", "GeneralReservation", "BookingEngineItem", "GeneralItem", "CancellationBody")
    for name in (*bodies, "Guest", "Address", "CardDetails"):
        fields = openapi()["components"]["schemas"][name]["properties"]
        assert all(field["description"] for field in fields.values())


@pytest.mark.parametrize(("path", "body"), [(BOOKING_ENGINE_PATH, BOOKING_ENGINE), (GENERAL_PATH, GENERAL)])
async def test_what_is_answered_on_the_way_of_a_reservation_is_in_it(path: str, body: Mapping[str, Any]) -> None:
    house: Stages
    async with stages() as house:
        house.client.event_hooks = {"response": [CONTRACT.holds]}
        at_once = {"Prefer": "respond-async", "Idempotency-Key": "order-1"}
        accepted = await house.client.post(path, json=body, headers=at_once)
        assert accepted.status_code == 202
        status_path = accepted.headers["location"]
        assert (await house.client.get(status_path)).json()["data"]["record"] is None
        await house.settle(house.requests[-1], Status.CONFIRMED, pms_reservation_id="P1")
        assert (await house.client.get(status_path)).json()["data"]["status"] == "CONFIRMED"
        made = await house.client.post(path, json=body, headers={"Prefer": "wait=1", "Idempotency-Key": "order-1"})
        assert made.status_code == 201
        read = await house.client.get(made.headers["location"])
        assert read.json() == made.json()
        for lists in ("/api/vrs/reservations", "/api/v1/vrs/reservations/"):
            assert len((await house.client.get(lists)).json()["data"]) == 1
        reused = await house.client.post(path, json={**body, "notes": "other"}, headers=at_once)
        assert reused.json()["code"] == "idempotency_key_reused"


async def test_what_is_answered_to_one_who_is_rejected_is_in_it() -> None:
    problem = ROOM_UNAVAILABLE.problem("The room is taken on 2027-06-03.").as_json()
    house: Stages
    async with stages() as house:
        house.client.event_hooks = {"response": [CONTRACT.holds]}
        keyed = {"Idempotency-Key": "order-1", "Prefer": "respond-async"}
        accepted = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=keyed)
        await house.settle(house.requests[-1], Status.REJECTED, problem=problem)
        again = {**keyed, "Prefer": "wait=1"}
        assert (await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=again)).status_code == 409
        read = (await house.client.get(accepted.headers["location"])).json()["data"]
        assert (read["problem"], read["record"]["problem"]) == (problem, problem)


TWICE = json.dumps(GENERAL)[:-1].encode() + b', "propertyId": "00123"}'
REFUSED: list[tuple[str, str, Mapping[str, str], bytes, str]] = [
    ("POST", GENERAL_PATH, {"Authorization": ""}, b"{}", "unauthenticated"),
    ("POST", GENERAL_PATH, {"workspaceId": ""}, b"{}", "missing_header"),
    ("POST", GENERAL_PATH, {"workspaceId": "other"}, b"{}", "wrong_workspace"),
    ("POST", GENERAL_PATH, {"integrationAccountId": "other"}, b"{}", "account_not_found"),
    ("POST", GENERAL_PATH, {"Content-Type": "text/plain"}, b"{}", "unsupported_media_type"),
    ("POST", GENERAL_PATH, JSON, b" " * 70_000, "body_too_large"),
    ("POST", GENERAL_PATH, JSON, b"{", "malformed_json"),
    ("POST", GENERAL_PATH, JSON, TWICE, "malformed_json"),
    ("POST", GENERAL_PATH, JSON, b"{}", "validation_failed"),
    ("POST", GENERAL_PATH, JSON, b'{"propertyId":"\xff"}', "malformed_json"),
    ("POST", GENERAL_PATH, JSON, b'{"propertyId":NaN}', "malformed_json"),
    ("POST", GENERAL_PATH, JSON, b'{"unknown":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "malformed_json"),
    ("POST", GENERAL_PATH, JSON, b'{"propertyId":' + b"9" * 60_000 + b"}", "malformed_json"),
    ("POST", GENERAL_PATH, JSON, b'{"totalPrice":1e999999999}', "validation_failed"),
    ("POST", GENERAL_PATH, {**JSON, "Idempotency-Key": '"'}, b"{}", "invalid_idempotency_key"),
    ("POST", GENERAL_PATH, {**JSON, "Forward-Deadline": "0"}, b"{}", "invalid_forward_deadline"),
    ("GET", GENERAL_PATH + "?limit=0", {}, b"", "invalid_query"),
    ("GET", GENERAL_PATH + "/7", {}, b"", "reservation_not_found"),
    ("GET", "/api/v1/vrs/submissions/rsv_x", {}, b"", "submission_not_found"),
    ("POST", GENERAL_PATH + "/7/cancel", {}, b"", "submission_not_found"),
    ("GET", "/nowhere", {}, b"", "not_found"),
    ("DELETE", GENERAL_PATH, {}, b"", "method_not_allowed"),
]


@for_each(("method", "path", "headers", "body", "code"), REFUSED, ids=[case[-1] for case in REFUSED])
async def test_what_is_refused_is_in_it(
    method: str, path: str, headers: Mapping[str, str], body: bytes, code: str
) -> None:
    house: Stages
    async with stages() as house:
        answer = await house.client.request(method, path, headers={**HEADERS, **headers}, content=body)
    assert answer.json()["code"] == code
    CONTRACT.check(answer)


@pytest.mark.parametrize("away", ["log", "directory", "reader"])
async def test_what_is_answered_in_an_outage_is_in_it(away: str) -> None:
    house: Stages
    async with stages() as house:
        house.client.event_hooks = {"response": [CONTRACT.holds]}
        getattr(house, away).away = True
        keyed = {"Idempotency-Key": "order-1"}
        answer = await house.client.post(BOOKING_ENGINE_PATH, json=BOOKING_ENGINE, headers=keyed)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


async def test_what_tells_of_the_service_is_in_it() -> None:
    house: Stages
    async with stages() as house:
        house.client.event_hooks = {"response": [CONTRACT.holds]}
        house.client.headers.clear()
        assert (await house.client.get("/openapi.json")).json() == openapi()
        assert (await house.client.get("/")).json()["openapi"] == "/openapi.json"
        shown = ("/docs", "/docs/guides", "/docs/guides/first-steps", "/docs/guides/nothing", "/problems")
        for path in (*shown, "/problems/not_found", "/problems/nothing", "/pms-openapi.json"):
            answer = await house.client.get(path)
            await house.client.get(path, headers={"If-None-Match": answer.headers.get("etag", "")})
        await house.client.get("/", headers={"Accept": "text/html"})
        told = await house.client.get("/problems/not_found", headers={"Accept": "application/json"})
        assert told.json()["type"] == "/problems/not_found"


_WRITTEN_LIMITS: list[tuple[int, str, str]] = [
    (MAX_BODY_BYTES, "paths/~1api~1v1~1vrs~1reservations/post/requestBody/description", "at most {:,} bytes"),
    (MAX_BULK_BYTES, "paths/~1api~1v1~1vrs~1reservations~1bulk/post/requestBody/description", "at most {:,} bytes"),
    (MAX_ITEM_BYTES, "paths/~1api~1v1~1vrs~1reservations~1bulk/post/requestBody/description", "{:,} bytes per item"),
    (MAX_ITEMS, "paths/~1api~1v1~1vrs~1reservations~1bulk/post/summary", "up to {:,} reservations"),
    (MAX_NIGHTS, "components/schemas/GeneralReservation/properties/departureDate/description", "1 to {} nights"),
    (LARGEST_LIMIT, "components/parameters/limit/description", "above {} are treated"),
    (LARGEST_LIMIT, "components/schemas/Meta/properties/limit/maximum", "{}"),
    (DEFAULT_LIMIT, "components/parameters/limit/schema/default", "{}"),
    (LARGEST_ID, "components/parameters/cursor/schema/maximum", "{}"),
    (LARGEST_ID, "components/parameters/reservationId/schema/maximum", "{}"),
    (LONGEST_PROPERTY_ID, "components/parameters/propertyId/schema/maxLength", "{}"),
    (MAX_DEADLINE_SECONDS, "components/parameters/ForwardDeadline/schema/maximum", "{}"),
    (
        MAX_ITEMS,
        "paths/~1api~1v1~1vrs~1reservations~1bulk/post/requestBody/content/application~1json/schema/maxItems",
        "{}",
    ),
]


@for_each(("limit", "pointer", "form"), _WRITTEN_LIMITS)
def test_a_limit_that_is_written_is_the_one_that_is_enforced(limit: int, pointer: str, form: str) -> None:
    place: Any = openapi()
    for step in pointer.split("/"):
        place = place[step.replace("~1", "/")]
    assert form.format(limit) in str(place)


def test_the_statuses_that_a_list_has_by_default_are_named() -> None:
    about, _, on_request = (
        openapi()["components"]["parameters"]["status"]["description"].partition("Default:")[2].partition(".")
    )
    assert {status for status in Status if f"`{status}`" in about} == LISTED_STATUSES
    assert {status for status in Status if f"`{status}`" in on_request} == set(Status) - LISTED_STATUSES


def _with(document: str, change: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """`document`, as though somebody had written it otherwise."""
    changed = deepcopy(written(document))
    change(changed)
    monkeypatch.setattr(contract, "written", lambda name: changed if name == document else written(name))


def _path(document: Any) -> Any:
    return document["paths"][GENERAL_PATH]["post"]


_MISTAKES: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "a code that is no problem": (lambda document: _path(document)["x-problems"].append("nothing"), "names nothing"),
    "a field without words": (lambda document: document["x-fields"].pop("notes"), "does not describe .*notes"),
    "words without a field": (lambda document: document["x-fields"].update(colour="Red."), "no model has: colour"),
    "a model that is gone": (
        lambda document: document["components"]["schemas"].update(Gone={"x-model": True}),
        "Gone",
    ),
    "a model that is not published": (lambda document: document["components"]["schemas"].pop("Guest"), "Guest"),
    "a header that is not there": (
        lambda document: _path(document)["responses"]["201"]["headers"].append("X-New"),
        "headers/X-New is referred to",
    ),
    "a parameter that is not there": (lambda document: _path(document)["parameters"].append("new"), "parameters/new"),
    "a list that is not there": (
        lambda document: document["x-shared"]["resultType"]["enum"].update({"x-from": "colours"}),
        "no such list",
    ),
}


@pytest.mark.parametrize("mistake", _MISTAKES)
def test_a_mistake_in_what_is_written_is_named(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, message = _MISTAKES[mistake]
    _with("openapi.yaml", change, monkeypatch)
    with pytest.raises(Mismatch, match=message):
        openapi()
