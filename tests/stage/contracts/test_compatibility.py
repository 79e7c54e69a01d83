"""Additive only under v1: each planted break of the real contracts is found, and nothing that only adds is taken for one."""

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import for_each
from tools.contracts.compatibility import breaking_changes, broken_event
from tools.contracts.pms_contract import open_pms_contract

SCHEMAS = Path(__file__).parents[3] / "schemas"
CONTRACT = json.loads((SCHEMAS / "openapi.json").read_text())
EVENT = "reservation.confirmed.v1"
EVENT_SCHEMA = json.loads((SCHEMAS / "events" / f"{EVENT}.schema.json").read_text())
GONE: Any = object()
Change = Callable[[Any], None]


def at(*path: str | int, **members: Any) -> Change:
    """Changes members of what is at `path`; `GONE` takes one away."""

    def change(document: Any) -> None:
        for step in path:
            document = document[step]
        for name, value in members.items():
            if value is GONE:
                del document[name]
            else:
                document[name] = value

    return change


def schema(name: str, *path: str | int, **members: Any) -> Change:
    return at("components", "schemas", name, *path, **members)


def changed(document: Any, change: Change) -> Any:
    made = copy.deepcopy(document)
    change(made)
    assert made != document
    return made


def required(name: str, field: str, *, now: bool) -> Change:
    def change(document: Any) -> None:
        fields = document["components"]["schemas"][name]["required"]
        if now:
            fields.append(field)
        else:
            fields.remove(field)

    return change


SUBMIT = ("paths", "/api/v1/vrs/reservations/booking-engine", "post")
LIST = ("paths", "/api/vrs/reservations", "get")
ENGINE, RECORD = "BookingEngineReservation", "Reservation"
NULLABLE_RECORD = ("Submission", "properties", "record")

BREAKS: dict[str, tuple[Change, str]] = {
    "a path is gone": (
        at("paths", **{"/api/v1/vrs/reservations/{id}": GONE}),
        "GET /api/v1/vrs/reservations/{id}: is gone",
    ),
    "an operation is gone": (at(*SUBMIT[:2], post=GONE), "POST /api/v1/vrs/reservations/booking-engine: is gone"),
    "an operation has another name": (at(*SUBMIT, operationId="book"), "operationId"),
    "an answer is gone": (at(*SUBMIT, "responses", **{"201": GONE}), "201 is gone"),
    "an answer has another form": (
        at(*SUBMIT, "responses", "201", "content", **{"application/json": GONE}),
        "application/json is gone",
    ),
    "a header of an answer is gone": (at(*SUBMIT, "responses", "202", "headers", Location=GONE), "no Location"),
    "a parameter is gone": (
        at(*LIST, parameters=[{"$ref": "#/components/parameters/cursor"}]),
        "query parameter limit is gone",
    ),
    "a parameter is required now": (
        at("components", "parameters", "IdempotencyKey", required=True),
        "idempotency-key is required now",
    ),
    "a parameter that is required is new": (
        lambda document: document["paths"][LIST[1]]["get"]["parameters"].append(
            {"name": "tenant", "in": "query", "required": True, "schema": {"type": "string"}}
        ),
        "tenant is new and required",
    ),
    "a parameter's bound is tighter": (
        at("components", "parameters", "cursor", "schema", maximum=100),
        f"`maximum` {2**63 - 1}, is now `maximum` 100",
    ),
    "a parameter's bound is new": (
        at("components", "parameters", "limit", "schema", multipleOf=10),
        "`multipleOf` was None, is 10",
    ),
    "a parameter excludes its bound": (
        at("components", "parameters", "limit", "schema", minimum=GONE, exclusiveMinimum=1),
        "`minimum` 1, is now `exclusiveMinimum` 1",
    ),
    "a parameter's default is another": (
        at("components", "parameters", "limit", "schema", default=50),
        "`default` was 10, is 50",
    ),
    "a credential is asked for": (at("paths", "/docs", "get", security=GONE), "credential"),
    "a body is required now": (
        at("paths", "/api/v1/vrs/reservations/{id}/cancel", "post", "requestBody", required=True),
        "a body is required now",
    ),
    "a request's field is gone": (schema(ENGINE, "properties", notes=GONE), "/notes: is gone"),
    "a request's field is required now": (required(ENGINE, "notes", now=True), "/notes: is required now"),
    "a request's field is of another type": (
        schema(ENGINE, "properties", totalPrice={"type": "string"}),
        "/totalPrice: was",
    ),
    "a request's field takes one type less": (
        schema(ENGINE, "properties", propertyId={"type": "string"}),
        "/propertyId: no longer takes",
    ),
    "a request's field takes one value less": (
        schema(ENGINE, "properties", "morChannel", enum=["SELF"]),
        "the value 'PMS' is gone",
    ),
    "a request's field takes only some values": (
        schema(ENGINE, "properties", notes={"type": "string", "enum": ["none"]}),
        "takes only 'none'",
    ),
    "a request takes no other fields": (schema(ENGINE, additionalProperties=False), "`additionalProperties` changed"),
    "a record's field is gone": (schema(RECORD, "properties", nights=GONE), "/nights: is gone"),
    "a record's field may be missing": (required(RECORD, "nights", now=False), "/nights: may be missing now"),
    "a record's field may be null": (
        schema(RECORD, "properties", source={"type": ["string", "null"]}),
        "/source: may now be null",
    ),
    "a record's field is of another type": (
        schema(RECORD, "properties", nights={"type": "string"}),
        "/nights: was integer, is string",
    ),
    "a record's number may have decimals": (
        schema(RECORD, "properties", nights={"type": "number"}),
        "/nights: was integer, is number",
    ),
    "a status has another name": (
        schema("Status", enum=["PENDING", "BOOKED", "REJECTED", "FAILED", "IN_DOUBT", "CANCELLED"]),
        "the value 'CONFIRMED' is gone",
    ),
    "a time is only a day": (
        schema(RECORD, "properties", "createdAt", format="date"),
        "`format` was date-time, is date",
    ),
    "an identifier looks otherwise": (schema(RECORD, "properties", "requestId", pattern="^sub_"), "`pattern`"),
    "a field deep in a record is gone": (
        schema("PrimaryGuest", "properties", emails=GONE),
        "/primaryGuest/emails: is gone",
    ),
    "an array is of another type": (
        schema("Codes", "properties", "accessCode", items={"type": "integer"}),
        "/accessCode/*: was string",
    ),
    "a reference is narrowed beside it": (
        schema("Receipt", "properties", status={"$ref": "#/components/schemas/Status", "enum": ["CONFIRMED"]}),
        "the value 'PENDING' is gone",
    ),
    "a keyword that is not understood": (schema(RECORD, **{"if": {"properties": {}}}), "`if` changed"),
}
ADDITIONS: dict[str, Change] = {
    "a path": at("paths", **{"/api/v1/vrs/new": {"get": {"responses": {}}}}),
    "an answer": at(*SUBMIT, "responses", **{"418": {"description": "Tea."}}),
    "a header of an answer": at(*SUBMIT, "responses", "202", "headers", New={"schema": {"type": "string"}}),
    "a parameter": lambda document: document["paths"][LIST[1]]["get"]["parameters"].append(
        {"name": "new", "in": "query", "schema": {"type": "string"}}
    ),
    "a request's field": schema(ENGINE, "properties", new={"type": "string"}),
    "a type that a field takes": schema(
        "CancellationBody", "properties", reason={"type": ["string", "null", "integer"]}
    ),
    "a value that a field takes": schema(ENGINE, "properties", "morChannel", enum=["SELF", "PMS", "AGENT"]),
    "a bound that is included": at(
        "components", "parameters", "cursor", "schema", maximum=GONE, exclusiveMaximum=2**63
    ),
    "a bound that is excluded from what is answered": schema(
        RECORD, "properties", "nights", minimum=GONE, exclusiveMinimum=1
    ),
    "a looser bound": at("components", "parameters", "cursor", "schema", maximum=2**64),
    "a record's field": schema(RECORD, "properties", new={"type": "string"}),
    "a status": lambda document: document["components"]["schemas"]["Status"]["enum"].append("ON_HOLD"),
    "a field that is always there": required(RECORD, "problem", now=True),
    "a tighter bound of what is answered": schema(RECORD, "properties", "nights", maximum=1000),
    "words": schema(RECORD, description="Other words."),
    "a deprecation": at(*SUBMIT, deprecated=True),
}


_ROOM = {"type": "string", "minLength": 1, "pattern": "[a-z]"}
_OR_NONE: list[Mapping[str, Any]] = [_ROOM, {"type": "string", "const": ""}]


def _room(*forms: Mapping[str, Any]) -> Any:
    """The contract, in which a room is given in one of these forms."""
    return changed(CONTRACT, schema("GeneralReservation", "properties", roomId={"anyOf": [*forms, {"type": "null"}]}))


def test_an_empty_text_may_become_part_of_a_pattern() -> None:
    once = {"type": "string", "pattern": "^$|[a-z]"}
    assert breaking_changes(_room(*_OR_NONE), _room(once)) == []
    assert "pattern" in breaking_changes(_room(*_OR_NONE), _room({**once, "pattern": "^$|[0-9]"}))[0]
    assert breaking_changes(_room(*_OR_NONE), _room(_ROOM)) != []


def test_beyond_2_to_the_53_an_exclusive_bound_is_an_inclusive_one() -> None:
    old, new = {"type": "number", "exclusiveMaximum": 2**63}, {"type": "number", "maximum": 2**63 - 1}
    assert breaking_changes(_room(old), _room(new)) == []
    assert breaking_changes(_room(old), _room({"type": "number", "maximum": 2**63 - 1025})) != []


def test_a_contract_keeps_its_own_promise() -> None:
    assert breaking_changes(CONTRACT, CONTRACT) == []


@for_each("name", BREAKS)
def test_a_break_is_found(name: str) -> None:
    change, told = BREAKS[name]
    found = breaking_changes(CONTRACT, changed(CONTRACT, change))
    assert any(told in one for one in found), found


@for_each("name", ADDITIONS)
def test_what_is_added_breaks_nothing(name: str) -> None:
    assert breaking_changes(CONTRACT, changed(CONTRACT, ADDITIONS[name])) == []


def test_where_a_record_may_be_missing_a_break_is_told_as_precisely() -> None:
    found = breaking_changes(CONTRACT, changed(CONTRACT, schema(RECORD, "properties", nights=GONE)))
    assert any("submissions/{request_id}: 200/data/record/nights: is gone" in one for one in found), found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (at("properties", requestId=GONE), "/requestId: is gone"),
        (at("properties", status={"type": "integer"}), "/status: "),
        (lambda document: document["required"].remove("status"), "/status: may be missing now"),
    ],
)
def test_a_broken_event_is_found(change: Change, told: str) -> None:
    old = EVENT_SCHEMA
    assert broken_event(old, old, EVENT) == []
    assert broken_event(old, changed(old, at("properties", new={"type": "string"})), EVENT) == []
    found = broken_event(old, changed(old, change), EVENT)
    assert any(one.startswith(EVENT) and told in one for one in found), found


def test_what_the_service_itself_calls_is_seen_from_the_other_side() -> None:
    """A PMS that keeps to the contract today must be served tomorrow: it is the one who is asked."""
    old = open_pms_contract()
    assert breaking_changes(old, old, served=False) == []
    operation = next(item["post"] for item in old["paths"].values() if "post" in item)
    sent = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    more = changed(old, schema(sent, "properties", new={"type": "string"}))
    assert breaking_changes(old, more, served=False) == []
    fewer = changed(
        old, schema(sent, "properties", **{next(iter(old["components"]["schemas"][sent]["properties"])): GONE})
    )
    assert breaking_changes(old, fewer, served=False) != []
