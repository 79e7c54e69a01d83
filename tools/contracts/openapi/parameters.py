"""The headers, path and query parameters of the HTTP contract."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from forwarder.http.paging import DEFAULT_LIMIT, FIRST, LARGEST_ID, LARGEST_LIMIT
from forwarder.query.pages import LONGEST_PROPERTY_ID
from forwarder.reservation.outcome import LISTED_STATUSES, Status
from forwarder.reservation.record import record_id_of
from forwarder.reservation.request import NOT_BLANK
from forwarder.reservation.submission import MAX_DEADLINE_SECONDS
from forwarder.store.deliveries import DeliveryStatus
from tools.contracts import examples
from tools.contracts.openapi.responses import Json

_PARAMETER: Final = "#/components/parameters/"
DEMO_WORKSPACE: Final = "demo"
DEMO_ACCOUNT: Final = "demo-generic"
"""Those that `forwarder up` makes: what the page of the contract fills in works there."""
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


def _query(name: str, about: str, schema: Json, example: Any, *, empty: bool = False) -> Json:
    """`empty`: it may be given without a value."""
    allowed = {"allowEmptyValue": True} if empty else {}
    shown = {"description": about, **allowed, "schema": schema, "example": example}
    return {"name": name, "in": "query", "required": False, **shown}


def _named(statuses: Collection[Status]) -> str:
    return ", ".join(f"`{status}`" for status in Status if status in statuses)


def _path(name: str, about: str, schema: Json, example: Any) -> Json:
    return {"name": name, "in": "path", "required": True, "description": about, "schema": schema, "example": example}


def _day(name: str, about: str) -> Json:
    return _query(name, about, {"type": "string", "format": "date"}, "2027-06-03")


PARAMETERS: Final[Mapping[str, Json]] = {
    "workspaceId": _header(
        "workspaceId",
        "The workspace that the API key was made for.",
        {"type": "string", "minLength": 1},
        DEMO_WORKSPACE,
        required=True,
    ),
    "integrationAccountId": _header(
        "integrationAccountId",
        "The integration account, which selects the PMS.",
        {"type": "string", "minLength": 1},
        DEMO_ACCOUNT,
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
    "PreferNews": _header(
        "Prefer",
        "RFC 7240. `wait=N`: wait up to N seconds until the submission is settled; with `If-None-Match`, until it is another than "
        "that names. `Preference-Applied` is left out where there was no waiting. What changes without an event (an attempt that "
        "was put off) does not end the wait, and is shown at its end. What is not understood is passed over.",
        {"type": "string"},
        "wait=30",
    ),
    "IfNoneMatch": _header(
        "If-None-Match",
        "The `ETag` of what you have (RFC 9110), several of them, or `*`: answered with 304 if that is what would be sent.",
        {"type": "string"},
        '"dGhlIHNhbWUgYXMgYmVm"',
    ),
    "ForwardDeadline": _header(
        "Forward-Deadline",
        "For how many seconds from now the reservation is worth forwarding; then it is `FAILED`. The account's own deadline counts "
        "where it is earlier.",
        {"type": "integer", "minimum": 1, "maximum": MAX_DEADLINE_SECONDS},
        3600,
    ),
    "RequestId": _header(
        "Request-Id",
        "A name of yours for this request, by which its answer and our log lines are found: letters, digits, `.`, `_`, `:`, `-`. "
        "`X-Request-Id` is taken too. One that is not such a word of at most 128 characters is replaced.",
        {"type": "string"},  # no pattern: nobody is refused for it
        "checkout-7f3a",
    ),
    "traceparent": _header(
        "traceparent",
        "W3C Trace Context: carried through to the request to the PMS, the events and the webhooks. What is none is passed over.",
        {"type": "string"},
        examples.TRACEPARENT,
    ),
    "tracestate": _header(
        "tracestate",
        "W3C Trace Context: carried through to the events and the webhooks, beside a `traceparent`.",
        {"type": "string"},
        examples.TRACESTATE,
    ),
    "dryRun": _query(
        "dryRun",
        "`true`: answer what the PMS would be asked for and which rules would refuse it, and publish nothing. An idempotency key "
        "stays free.",
        {"type": "boolean", "default": False},
        True,  # noqa: FBT003 - the example itself
    ),
    "limit": _query(
        "limit",
        f"Items a page, {LARGEST_LIMIT} at the most: who asks for more gets as many, and `meta.limit` says so. "
        "A page of more than 1 MiB ends early; follow `next`.",
        {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT},
        20,
    ),
    "cursor": _query(
        "cursor",
        "Where the page begins: `meta.cursors.next` of the page before, with the same filters and order. `1`, or "
        "nothing at all, is the first page. Taken under the name `cursors` too.",
        {"type": "integer", "minimum": FIRST, "maximum": LARGEST_ID, "default": FIRST},
        21,
        empty=True,
    ),
    "order": _query(
        "order",
        "By `id`: `asc`, the first taken in first, or `desc`, the newest first.",
        {"type": "string", "enum": ["asc", "desc"], "default": "asc"},
        "desc",
    ),
    "status": {
        **_query(
            "status",
            "Those of one of these statuses. Given several times, or joined by commas. Unless given, the list has what was made "
            f"and what is under way ({_named(LISTED_STATUSES)}); {_named(set(Status) - LISTED_STATUSES)} are listed only when "
            "asked for.",
            {
                "type": "array",
                "items": {"type": "string", "enum": [status.value for status in Status]},
            },
            ["PENDING", "IN_DOUBT"],
        ),
        "style": "form",
        "explode": True,
    },
    "propertyId": _query(
        "propertyId",
        "Those at this property, as it was submitted.",
        {"type": "string", "minLength": 1, "maxLength": LONGEST_PROPERTY_ID, "pattern": NOT_BLANK},
        "1001",
    ),
    "arrivalFrom": _day("arrivalFrom", "Those that arrive on this day or later."),
    "arrivalTo": _day("arrivalTo", "Those that arrive on this day or earlier; not before `arrivalFrom`."),
    "departureFrom": _day("departureFrom", "Those that depart on this day or later."),
    "departureTo": _day("departureTo", "Those that depart on this day or earlier; not before `departureFrom`."),
    "updatedSince": _query(
        "updatedSince",
        "Those whose `updatedAt` is this moment or later. Its offset from UTC is needed; a `+` is written `%2B` in an address.",
        {"type": "string", "format": "date-time"},
        "2027-01-15T09:30:00Z",
    ),
    "requestId": _path("request_id", "The `requestId` of the submission.", REQUEST_ID_SCHEMA, examples.request_id()),
    "reservationId": _path(
        "id", "The `id` of the reservation.", _RESERVATION_ID_SCHEMA, record_id_of(examples.request_id())
    ),
    "eitherId": _path(
        "id",
        "The `requestId` of the submission, or the `id` of its reservation.",
        {"oneOf": [REQUEST_ID_SCHEMA, {**_RESERVATION_ID_SCHEMA, "maximum": 10**18 - 1}]},
        examples.request_id(),
    ),
    "webhookId": _path("id", "The `id` of the webhook.", {"type": "string"}, "whk_4f9d1c27a6"),
    "deliveryId": _path("delivery_id", "The `id` of the delivery.", _RESERVATION_ID_SCHEMA, 7),
    "deliveryStatus": _query(
        "status", "Only those that stand so.", {"type": "string", "enum": list(DeliveryStatus)}, "FAILED"
    ),
}
CALLER: Final = ("workspaceId", "integrationAccountId", "RequestId")
"""With the API key: who calls, and for which account."""


def references(names: Sequence[str]) -> list[Json]:
    """The parameters, by reference."""
    return [{"$ref": _PARAMETER + name} for name in names]
