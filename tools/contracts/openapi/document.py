"""The HTTP contract as OpenAPI 3.1: what booking engines build against. Pure; published as schemas/openapi.json.

Built from the models that requests are validated with, and from examples that the stages' own code wrote.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from forwarder.http.deprecation import DEPRECATED, Deprecation
from forwarder.reservation.problems.catalogue import CATALOGUE
from tools.contracts.json_schema import schema_of
from tools.contracts.openapi import response_bodies as bodies
from tools.contracts.openapi.about import SCHEMAS, about_paths
from tools.contracts.openapi.parameters import PARAMETERS
from tools.contracts.openapi.reading import reading_paths
from tools.contracts.openapi.request_bodies import body_schemas
from tools.contracts.openapi.response_examples import response_examples
from tools.contracts.openapi.responses import HEADERS, Json, limited, problem_examples, references, traced
from tools.contracts.openapi.samples import with_samples
from tools.contracts.openapi.submitting import submitting_paths
from tools.contracts.openapi.webhooks.events import webhook_events, webhook_examples
from tools.contracts.openapi.webhooks.operations import webhook_paths, webhook_schemas
from tools.contracts.record import Problem

VERSION: Final = "1.0.0"
_REF: Final = "#/components/schemas/"
_RESPONSES: Final = (
    bodies.ReceiptEnvelope,
    bodies.AcceptedEnvelope,
    bodies.BulkEnvelope,
    bodies.DryRunEnvelope,
    bodies.ReservationEnvelope,
    bodies.CancellationReceiptEnvelope,
    bodies.SubmissionEnvelope,
    bodies.ReservationPage,
    bodies.ProblemBody,
    Problem,
)
_ABOUT: Final = """\
Submit a reservation once. It is answered as soon as it is safe, and carried to the property management system (PMS) at the pace
which that allows, through its outages: never lost, never made twice. Its outcome can be read.

- Every request of an integration account carries an API key and the headers `workspaceId` and `integrationAccountId`.
- Send an `Idempotency-Key` with every submission: then it may be sent again as often as needed.
- A refusal is a problem (RFC 9457) with a stable `code`. A path that is not here answers 404, a method that is not here 405, and
  every 503 says in `Retry-After` when to come again. Headers that are too long answer 431; what is no HTTP is refused
  with 400 and without a problem. HEAD is answered wherever GET is.
- An API key may have a rate limit on submitting, cancelling and managing webhooks together. `RateLimit` shows the remaining quota;
  when it is used up you get 429.
- A page ends early, with `next` set, where more items would make it larger than 1 MiB. Follow `next` until it is empty.
- Under `v1` things are only ever added: pass over fields and values that you do not know.

Begin with [first steps](/docs/guides/first-steps), or with [submitting reservations](/docs/guides/submit-reservations);
there are [more guides](/docs/guides), a page for [each problem](/problems), and the [contract of the messages](/asyncapi.yaml).
To try an operation here, enter an API key and the two headers."""
_API_KEY: Final = """\
An API key of the workspace, with the scope that each operation needs. One that begins with `fwd_test_` is a test key: its
reservations are made in simulated PMSs, whatever the integration account's own, and are kept apart from all that is live."""


def openapi() -> dict[str, Any]:
    """The document."""
    return marked(_without_unused(with_samples(_document())))


def _document() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Reservation forwarder",
            "version": VERSION,
            "description": _ABOUT,
            "contact": {"name": "Whoever runs this deployment"},
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/", "description": "Where this document was read."}],
        "security": [{"apiKey": []}],
        "tags": [
            {"name": "Submitting", "description": "Reservations go in."},
            {"name": "Reading", "description": "What has become of them."},
            {"name": "Webhooks", "description": "Results, posted to an address of yours as they come."},
            {"name": "About", "description": "The service itself. No credential is asked for."},
        ],
        "paths": _paths(),
        "webhooks": webhook_events(),
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer", "description": _API_KEY}},
            "parameters": dict(PARAMETERS),
            "headers": dict(HEADERS),
            "examples": {name: {"value": value} for name, value in shown_examples().items()},
            "schemas": _schemas(),
        },
    }


def _without_unused(document: Json) -> Json:
    """Some problems are answered by every operation alike, or never: their examples are files of their own alone."""
    examples = document["components"]["examples"]
    used = set(re.findall(r'"#/components/examples/([^"]+)"', json.dumps(document)))
    document["components"]["examples"] = {name: one for name, one in examples.items() if name in used}
    return document


def _paths() -> Json:
    """Those of all stages; some share one."""
    paths: Json = {}
    for part in (limited(submitting_paths()), reading_paths(), limited(webhook_paths()), about_paths()):
        for path, operations in part.items():
            paths.setdefault(path, {}).update(operations)
    return traced(paths)


def shown_examples() -> Json:
    """One at least of every response and of every problem, by name."""
    return response_examples() | webhook_examples() | problem_examples()


def _schemas() -> Json:
    parts: Json = {}
    for model in _RESPONSES:
        parts[model.__name__] = schema_of(model, parts, ref=_REF)
    for problem in ("Problem", "ProblemBody"):
        parts[problem]["properties"]["code"]["examples"] = list(CATALOGUE)
    return body_schemas(_REF) | dict(sorted((webhook_schemas(_REF) | parts).items())) | SCHEMAS


_DEPRECATION_HEADERS: Final[Json] = {
    "Deprecation": {
        "description": "Since when the operation is deprecated: `@` and unix time (RFC 9745).",
        "schema": {"type": "string", "pattern": "^@-?[0-9]+$"},
        "example": "@1861920000",
    },
    "Sunset": {
        "description": "When it will answer no more (RFC 8594).",
        "schema": {"type": "string"},
        "example": "Wed, 01 Jan 2031 00:00:00 GMT",
    },
    "Link": {
        "description": "`deprecation`: where this is explained; `successor-version`: what to use instead.",
        "schema": {"type": "string"},
        "example": '</docs>; rel="deprecation"; type="text/html"',
    },
}


def marked(document: dict[str, Any], table: Sequence[Deprecation] = DEPRECATED) -> dict[str, Any]:
    """The contract, in which the operations of the `table` are deprecated. Raises `KeyError` for one that it does not have."""
    for one in table:
        operation = document["paths"][one.path][one.method.lower()]
        operation["deprecated"] = True
        operation["description"] = f"{_notice(one)}\n\n{operation.get('description', '')}".strip()
        names = tuple(name for name in _DEPRECATION_HEADERS if name != "Sunset" or one.sunset)
        for response in operation["responses"].values():
            response["headers"] = response.get("headers", {}) | references(names)
        document["components"]["headers"] |= _DEPRECATION_HEADERS
    return document


def _notice(one: Deprecation) -> str:
    end = f" It answers until {one.sunset:%Y-%m-%d}." if one.sunset else ""
    instead = f" Use `{one.successor}` instead." if one.successor else ""
    return f"Deprecated since {one.since:%Y-%m-%d}.{end}{instead}"
