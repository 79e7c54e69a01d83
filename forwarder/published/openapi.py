"""The HTTP contract as OpenAPI 3.1: what booking engines build against. Pure; published as schemas/openapi.json.

Built from the models that requests are validated with, and from examples that the stages' own code wrote.
"""

from typing import Any, Final

from forwarder.published import answers
from forwarder.published.about import SCHEMAS, about_paths
from forwarder.published.answering import HEADERS, Json, problem_examples
from forwarder.published.limits import limited
from forwarder.published.marking import marked
from forwarder.published.parameters import PARAMETERS
from forwarder.published.reading import reading_paths
from forwarder.published.record import Problem
from forwarder.published.requests import body_schemas
from forwarder.published.shown import answer_examples
from forwarder.published.submitting import submitting_paths
from forwarder.published.webhook_events import webhook_events, webhook_examples
from forwarder.published.webhooks import webhook_paths, webhook_schemas
from forwarder.reservation.json_schema import schema_of
from forwarder.reservation.problems.chapters import CATALOGUE

VERSION: Final = "1.0.0"
_REF: Final = "#/components/schemas/"
_ANSWERS: Final = (
    answers.ReceiptEnvelope,
    answers.BulkEnvelope,
    answers.DryRunEnvelope,
    answers.ReservationEnvelope,
    answers.CancellationReceiptEnvelope,
    answers.SubmissionEnvelope,
    answers.ReservationPage,
    Problem,
)
_ABOUT: Final = """\
Submit a reservation once. It is answered as soon as it is safe, and carried to the property management system (PMS) at the pace
which that allows, through its outages: never lost, never made twice. Its outcome can be read.

- Every request of an integration account carries an API key and the headers `workspaceId` and `integrationAccountId`.
- Send an `Idempotency-Key` with every submission: then it may be sent again as often as needed.
- A refusal is a problem (RFC 9457) with a stable `code`. A path that is not here answers 404, a method that is not here 405, and
  every 503 says in `Retry-After` when to come again. What is no HTTP answers 400, headers that are too long 431. HEAD is answered
  wherever GET is.
- An API key may have a rate limit on submitting and cancelling, together: `RateLimit` says what is left, and 429 that nothing is.
- Under `v1` things are only ever added: pass over fields and values that you do not know."""
_API_KEY: Final = """\
An API key of the workspace. One that begins with `fwd_test_` is a test key: its reservations are made in simulated PMSs, whatever
the integration account's own, and are kept apart from all that is live."""


def openapi() -> dict[str, Any]:
    """The document."""
    return marked(_document())


def _document() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Reservation forwarder",
            "version": VERSION,
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
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
            "examples": {name: {"value": value} for name, value in _examples().items()},
            "schemas": _schemas(),
        },
    }


def _paths() -> Json:
    """Those of all stages; some share one."""
    paths: Json = {}
    for part in (limited(submitting_paths()), reading_paths(), webhook_paths(), about_paths()):
        for path, operations in part.items():
            paths.setdefault(path, {}).update(operations)
    return paths


def _examples() -> Json:
    return answer_examples() | webhook_examples() | problem_examples()


def _schemas() -> Json:
    parts: Json = {}
    for model in _ANSWERS:
        parts[model.__name__] = schema_of(model, parts, ref=_REF)
    parts["Problem"]["properties"]["code"]["examples"] = list(CATALOGUE)
    return body_schemas(_REF) | dict(sorted((webhook_schemas(_REF) | parts).items())) | SCHEMAS
