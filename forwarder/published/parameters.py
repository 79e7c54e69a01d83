"""The headers, path and query parameters of the HTTP contract."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forwarder.published import examples
from forwarder.published.answering import Json
from forwarder.query.paging import DEFAULT_LIMIT, FIRST, LARGEST_ID, LARGEST_LIMIT
from forwarder.reservation.submission import LONGEST_DEADLINE_SECONDS

_PARAMETER: Final = "#/components/parameters/"
REQUEST_ID_SCHEMA: Final = {"type": "string", "pattern": "^rsv_[a-z2-7]{32}$"}
_RESERVATION_ID_SCHEMA: Final = {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}


def _header(name: str, about: str, schema: Json, example: Any, *, required: bool = False) -> Json:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": about,
        "schema": schema,
        "example": example,
    }


def _query(name: str, about: str, schema: Json, example: Any) -> Json:
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema, "example": example}


def _path(name: str, about: str, schema: Json, example: Any) -> Json:
    return {"name": name, "in": "path", "required": True, "description": about, "schema": schema, "example": example}


PARAMETERS: Final[Mapping[str, Json]] = {
    "workspaceId": _header(
        "workspaceId",
        "The workspace that the API key was made for.",
        {"type": "string"},
        examples.WORKSPACE_ID,
        required=True,
    ),
    "integrationAccountId": _header(
        "integrationAccountId",
        "The integration account, which selects the PMS.",
        {"type": "string"},
        examples.ACCOUNT_ID,
        required=True,
    ),
    "IdempotencyKey": _header(
        "Idempotency-Key",
        "Makes sending again safe: the same key in the same account is the same submission, for ever, with the same `requestId`. "
        "1 to 255 printable ASCII characters as one quoted string (RFC 8941); taken without the quotes too.",
        {
            "type": "string",
            "pattern": r'^("([ !#-\[\]-~]|\\["\\]){1,255}"|[!#-~]([ !#-~]{0,253}[!#-~])?)$',
        },
        examples.IDEMPOTENCY_KEY,
    ),
    "Prefer": _header(
        "Prefer",
        "RFC 7240. `wait=N`: wait up to N seconds for the outcome. `respond-async`: answer as soon as the submission is safe. "
        "What is not understood is passed over.",
        {"type": "string"},
        "wait=10",
    ),
    "ForwardDeadline": _header(
        "Forward-Deadline",
        "For how many seconds from now the reservation is worth forwarding; then it is `FAILED`. The account's own deadline counts "
        "where it is earlier.",
        {"type": "integer", "minimum": 1, "maximum": LONGEST_DEADLINE_SECONDS},
        3600,
    ),
    "traceparent": _header(
        "traceparent",
        "W3C Trace Context, carried through to the events. What is none is passed over.",
        {"type": "string"},
        examples.TRACEPARENT,
    ),
    "limit": _query(
        "limit",
        "Items a page.",
        {"type": "integer", "minimum": 1, "maximum": LARGEST_LIMIT, "default": DEFAULT_LIMIT},
        20,
    ),
    "cursor": _query(
        "cursor",
        "Where the page begins: `meta.cursors.next` of the page before. Taken under the name `cursors` too.",
        {"type": "integer", "minimum": FIRST, "maximum": LARGEST_ID, "default": FIRST},
        21,
    ),
    "requestId": _path("request_id", "The `requestId` of the submission.", REQUEST_ID_SCHEMA, examples.request_id()),
    "reservationId": _path("id", "The `id` of the reservation.", _RESERVATION_ID_SCHEMA, 1),
    "eitherId": _path(
        "id",
        "The `requestId` of the submission, or the `id` of its reservation.",
        {"oneOf": [REQUEST_ID_SCHEMA, {**_RESERVATION_ID_SCHEMA, "maximum": 10**18 - 1}]},
        examples.request_id(),
    ),
}
CALLER: Final = ("workspaceId", "integrationAccountId")
"""With the API key: who calls, and for which account."""


def references(names: Sequence[str]) -> list[Json]:
    """The parameters, by reference."""
    return [{"$ref": _PARAMETER + name} for name in names]
