"""The HTTP contract: schemas/openapi.yaml, completed by the code's models, problems and examples. Pure; published as
schemas/openapi.json, and served at /openapi.json."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from pydantic_core import from_json

from forwarder.http.messages import problem_body
from forwarder.notifier.posting import TEST_EVENT
from forwarder.reservation.problems import (
    BODY_TIMED_OUT,
    BODY_TOO_LARGE,
    CATALOGUE,
    RATE_LIMITED,
    VALIDATION_FAILED,
    ProblemType,
)
from forwarder.reservation.record import RESULT_TYPES
from tools.contracts import examples
from tools.contracts.answers import delivered_examples, response_examples
from tools.contracts.models import Mismatch, model_schemas
from tools.contracts.samples import with_samples
from tools.contracts.written import Json, expanded, reference, references, require_references, written

NAME: Final = "openapi.yaml"
_LIMIT_HEADERS: Final = ("RateLimit-Policy", "RateLimit")
_STATUS_HEADERS: Final[Mapping[int, tuple[str, ...]]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After",),
    503: ("Retry-After",),
    BODY_TIMED_OUT.status: ("Connection",),
    BODY_TOO_LARGE.status: ("Connection",),
}


def openapi() -> Json:
    """The document. Raises `Mismatch` where what is written and the code differ."""
    said = written(NAME)
    document: Json = expanded({name: part for name, part in said.items() if not name.startswith("x-")})
    for path, operations in document["paths"].items():
        document["paths"][path] = {method: _operation(one) for method, one in operations.items()}
    for one in document["components"]["parameters"].values():
        if not one.pop("x-filled-in", False) and not one.get("required"):
            one["examples"] = {"example": {"value": one.pop("example"), "x-disabled": True}}
    document["webhooks"] = dict(_deliveries(document["webhooks"]))
    document["components"]["schemas"] = contract_schemas()
    used = set(re.findall(r'"#/components/examples/([^"]+)"', json.dumps(document)))
    document["components"]["examples"] = {
        name: {"value": value} for name, value in shown_examples().items() if name in used
    }
    require_references(document, NAME)
    return with_samples(document)


def contract_schemas() -> Json:
    """Every schema by its name: those that are written, and those of the models."""
    said = written(NAME)["components"]["schemas"]
    models = model_schemas(said, written(NAME)["x-fields"])
    return {name: models.get(name) or expanded(schema) for name, schema in said.items()}


def shown_examples() -> Json:
    """One at least of every response and of every problem, by name."""
    return response_examples() | _problem_examples()


def _problem_examples() -> Json:
    shown = {code: one.problem(one.when) for code, one in CATALOGUE.items()} | {
        VALIDATION_FAILED.code: examples.invalid()
    }
    named = {"httpRequestId": written(NAME)["components"]["headers"]["Request-Id"]["example"]}
    return {code: from_json(problem_body(problem.as_json() | named)) for code, problem in shown.items()}


def _operation(said: Json) -> Json:
    """An operation with all that is not written of each: its refusals, and the headers of its responses."""
    operation = {name: part for name, part in said.items() if name != "x-problems"}
    if "x-required-scope" in said:
        operation["security"] = [{"apiKey": []}]
    for medium in operation.get("requestBody", {}).get("content", {}).values():
        medium["examples"] = {"example": {"value": medium.pop("example")}}
    codes = list(_codes(said["x-problems"]))
    limited = _LIMIT_HEADERS if RATE_LIMITED.code in codes else ()
    responses = dict(_refusals(codes))
    for status, one in said["responses"].items():
        made = responses.get(status, {})
        responses[status] = {**made, **one, "headers": made.get("headers", {}) | one.get("headers", {})}
    for status, response in responses.items():
        more = references("headers", limited if status != "401" else ())
        response["headers"] = references("headers", ("Request-Id",)) | response["headers"] | more
    operation["responses"] = dict(sorted(responses.items()))
    return operation


def _codes(names: Sequence[str]) -> Iterator[str]:
    """The problem codes of an operation. A name is a code, or that of a group."""
    groups = written(NAME)["x-problems"]
    for name in names:
        yield from groups.get(name, (name,))


def _refusals(codes: Sequence[str]) -> Iterator[tuple[str, Json]]:
    """The response for each status that one of the problems has."""
    if unknown := [code for code in codes if code not in CATALOGUE]:
        raise Mismatch(f"schemas/{NAME}: `x-problems` names {unknown[0]}, which is neither a problem nor a group.")
    types = sorted((CATALOGUE[code] for code in dict.fromkeys(codes)), key=_status)
    for status, group in groupby(types, key=_status):
        of_status = list(group)
        yield (
            str(status),
            {
                "description": "\n".join(f"- [`{one.code}`](/problems/{one.code}): {one.title}" for one in of_status),
                "headers": references("headers", _STATUS_HEADERS.get(status, ())),
                "content": {
                    "application/problem+json": {
                        "schema": reference("schemas", "ProblemBody"),
                        "examples": references("examples", [one.code for one in of_status]),
                    }
                },
            },
        )


def _status(one: ProblemType) -> int:
    return one.status


def _deliveries(said: Json) -> Iterator[tuple[str, Json]]:
    """What is posted to webhooks: an operation for each type of event."""
    messages, bodies = written("asyncapi.yaml")["components"]["messages"], delivered_examples()
    for kind in (*RESULT_TYPES, TEST_EVENT):
        operation = {"operationId": kind, **said[kind if kind in said else "x-results"]["post"]}
        schema = {"allOf": [reference("schemas", operation.pop("x-schema")), {"properties": {"type": {"const": kind}}}]}
        medium = {"schema": schema, "examples": {"example": {"value": bodies[kind]}}}
        operation |= {"requestBody": {"required": True, "content": {"application/json": medium}}}
        yield kind, {"post": {"summary": messages[kind]["summary"] if kind in messages else "", **operation}}
