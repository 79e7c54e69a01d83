"""Answers of the HTTP contract: their headers, their bodies, and the problems, a response for each status."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import groupby
from typing import Any, Final

from pydantic_core import from_json

from forwarder.http.messages import problem_body
from forwarder.reservation.problems.catalogue import CATALOGUE
from forwarder.reservation.problems.problem import ProblemType
from forwarder.reservation.problems.requests import (
    ADDRESS_NOT_ALLOWED,
    BODY_TIMED_OUT,
    BODY_TOO_LARGE,
    INSUFFICIENT_SCOPE,
    INVALID_QUERY,
    KEY_EXPIRED,
    MALFORMED_JSON,
    MISSING_HEADER,
    RATE_LIMITED,
    TOO_MANY_BAD_TOKENS,
    UNAUTHENTICATED,
    UNSUPPORTED_MEDIA_TYPE,
    VALIDATION_FAILED,
    WRONG_WORKSPACE,
)
from forwarder.tenancy.api_keys import Scope
from tools.contracts import examples

Json = dict[str, Any]

_SCHEMA: Final = "#/components/schemas/"
_EXAMPLE: Final = "#/components/examples/"
_HEADER: Final = "#/components/headers/"

BODY_PROBLEMS: Final = (UNSUPPORTED_MEDIA_TYPE, BODY_TOO_LARGE, BODY_TIMED_OUT, MALFORMED_JSON, VALIDATION_FAILED)
"""What can be wrong with a JSON body, wherever one is taken."""

ACCESS_PROBLEMS: Final = (
    UNAUTHENTICATED,
    KEY_EXPIRED,
    TOO_MANY_BAD_TOKENS,
    ADDRESS_NOT_ALLOWED,
    INSUFFICIENT_SCOPE,
    MISSING_HEADER,
    WRONG_WORKSPACE,
)
"""What can be wrong with who calls, wherever an API key is asked for."""

COMMON_PROBLEMS: Final = (*ACCESS_PROBLEMS, INVALID_QUERY)
"""What can be wrong with any request for which an API key is asked: a query parameter that the operation does not take, too."""

HEADERS: Final[Mapping[str, Json]] = {
    "Request-Id": {
        "description": "Names this request in the service's log: quote it when you ask about it. Yours, if you sent one.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"},
        "example": "req_6f1d8c0be2a94c57d3e8a1b0",
    },
    "Idempotent-Replayed": {
        "description": "`true` where the `Idempotency-Key` came before: nothing new was made, and this answers for what was.",
        "schema": {"type": "string", "const": "true"},
    },
    "Location": {
        "description": "Where what this is about is read: a path.",
        "schema": {"type": "string", "format": "uri-reference"},
        "example": f"/api/v1/vrs/submissions/{examples.request_id()}",
    },
    "Retry-After": {
        "description": "In how many seconds to come again.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 1,
    },
    "RateLimit-Policy": {
        "description": "What the API key may submit and cancel: `q` times in `w` seconds, all at once or one by one. "
        "draft-ietf-httpapi-ratelimit-headers. Left out, like `RateLimit`, where the key has no limit.",
        "schema": {"type": "string", "pattern": '^"default";q=[1-9][0-9]*;w=[1-9][0-9]*$'},
        "example": '"default";q=100;w=60',
    },
    "RateLimit": {
        "description": "What is left of that: `r` times now, and more in `t` seconds.",
        "schema": {"type": "string", "pattern": '^"default";r=[0-9]+;t=[1-9][0-9]*$'},
        "example": '"default";r=50;t=1',
    },
    "Preference-Applied": {
        "description": "Which preferences were followed (RFC 7240). Left out where `Prefer` named none.",
        "schema": {"type": "string"},
        "example": "wait=10",
    },
    "Duplicate-Of": {
        "description": "The `requestId` of the earlier submission that this one repeats: nothing more was booked, and what is "
        "answered is that one's. Left out where it repeats none.",
        "schema": {"type": "string"},
        "example": examples.request_id(),
    },
    "Link": {
        "description": "Where it is described what an `Idempotency-Key` does: in the first answer to one without, once "
        "for each API key and process. `rel` is `help`.",
        "schema": {"type": "string"},
        "example": '</docs#submitBookingEngineReservation>; rel="help"; title="Idempotency-Key"',
    },
    "ETag": {
        "description": "Changes with anything that is shown. To be sent back in `If-None-Match`.",
        "schema": {"type": "string", "pattern": '^"[A-Za-z0-9_-]{20}"$'},
        "example": '"dGhlIHNhbWUgYXMgYmVm"',
    },
    "Cache-Control": {
        "description": "No cache may keep what tells of a guest.",
        "schema": {"type": "string", "const": "no-store"},
    },
    "WWW-Authenticate": {
        "description": "Which credential is asked for.",
        "schema": {"type": "string", "const": "Bearer"},
    },
    "Connection": {
        "description": "The rest of the body was not read, and the connection ends.",
        "schema": {"type": "string", "const": "close"},
    },
    "Vary": {
        "description": "By which headers the answer was chosen.",
        "schema": {"type": "string", "enum": ["Accept", "Accept-Encoding", "Accept, Accept-Encoding"]},
    },
}
_WITH_STATUS: Final[Mapping[int, tuple[str, ...]]] = {
    HTTPStatus.UNAUTHORIZED: ("WWW-Authenticate",),
    HTTPStatus.TOO_MANY_REQUESTS: ("Retry-After",),
    HTTPStatus.SERVICE_UNAVAILABLE: ("Retry-After",),
    BODY_TIMED_OUT.status: ("Connection",),
    BODY_TOO_LARGE.status: ("Connection",),
}


def needs(scope: Scope) -> Json:
    """What an operation says of the API keys that it takes. OpenAPI 3.1 lets a bearer scheme name roles in `security`, which many
    tools do not."""
    return {"security": [{"apiKey": []}], "x-required-scope": scope}


def success(description: str, schema: str, shown: Sequence[str], *headers: str) -> Json:
    """One that is not a problem. `shown`: the names of its examples."""
    return {
        "description": description,
        "headers": references(headers),
        "content": {
            "application/json": {
                "schema": {"$ref": _SCHEMA + schema},
                "examples": _examples(shown),
            }
        },
    }


def not_modified(*headers: str) -> Json:
    """The response to those who have what they ask for already."""
    return {"description": "`If-None-Match` names what would be sent.", "headers": references(headers)}


def references(headers: Sequence[str]) -> Json:
    """The headers, by reference."""
    return {name: {"$ref": _HEADER + name} for name in headers}


def problems(types: Sequence[ProblemType], *, headers: Mapping[int, tuple[str, ...]] | None = None) -> Json:
    """The responses that refuse with `types`. `headers`: those that only some of a status have."""
    by_status = groupby(sorted(dict.fromkeys(types), key=lambda one: one.status), key=lambda one: one.status)
    return {str(status): _refusal(status, list(group), (headers or {}).get(status, ())) for status, group in by_status}


def _refusal(status: int, types: Sequence[ProblemType], more: tuple[str, ...]) -> Json:
    headers = (*_WITH_STATUS.get(status, ()), *more)
    return {
        "description": "\n".join(f"- [`{one.code}`](/problems/{one.code}): {one.title}" for one in types),
        **({"headers": references(headers)} if headers else {}),
        "content": {
            "application/problem+json": {
                "schema": {"$ref": _SCHEMA + "ProblemBody"},
                "examples": _examples([one.code for one in types]),
            }
        },
    }


def _examples(names: Sequence[str]) -> Json:
    return {name: {"$ref": _EXAMPLE + name} for name in names}


def problem_examples() -> Json:
    """An example of each problem, by its code."""
    shown = {code: one.problem(one.when) for code, one in CATALOGUE.items()}
    shown |= {VALIDATION_FAILED.code: examples.invalid()}
    named = {"httpRequestId": HEADERS["Request-Id"]["example"]}
    return {code: from_json(problem_body(problem.as_json() | named)) for code, problem in shown.items()}


def traced(paths: Json) -> Json:
    """`paths`, each of whose responses names its request."""
    for operations in paths.values():
        for operation in operations.values():
            for response in operation["responses"].values():
                response["headers"] = references(("Request-Id",)) | response.get("headers", {})
    return paths


_FIELDS: Final = ("RateLimit-Policy", "RateLimit")


def limited(paths: Json) -> Json:
    """`paths`, each of whose operations counts."""
    for operations in paths.values():
        for operation in operations.values():
            responses = operation["responses"] | problems((TOO_MANY_BAD_TOKENS, RATE_LIMITED))
            for status, response in responses.items():
                if status != str(UNAUTHENTICATED.status):
                    response["headers"] = response.get("headers", {}) | references(_FIELDS)
            operation["responses"] = dict(sorted(responses.items()))
    return paths
