"""Reads the requests of the webhook API: bodies and page parameters, or the problem that refuses them.

The models' docstrings and descriptions are published in the OpenAPI document."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from forwarder.http import parameters
from forwarder.http.messages import JSON_BODY, BodyFault, HttpRequest
from forwarder.notifier.webhooks import DEFAULT_OVERLAP_SECONDS, MAX_OVERLAP_SECONDS, WebhookTerms
from forwarder.reservation import problems as catalogue
from forwarder.reservation.checks.card_numbers import find
from forwarder.reservation.checks.faults import MalformedJson
from forwarder.reservation.checks.fields import read_object
from forwarder.reservation.problems import FieldFault, Problem, summary_of
from forwarder.reservation.record import MAX_ID, RESULT_TYPES
from forwarder.reservation.request import MAX_BODY_BYTES, NO_NUL, whole
from forwarder.store.deliveries import DeliveryStatus
from forwarder.webhooks.port import MAX_HEADERS

_UNREAD: Final = {
    BodyFault.TOO_LARGE: catalogue.BODY_TOO_LARGE.problem(f"The body must have at most {MAX_BODY_BYTES} bytes."),
    BodyFault.TIMED_OUT: catalogue.BODY_TIMED_OUT.problem("Nothing was changed."),
    BodyFault.NO_ROOM: catalogue.OVERLOADED.problem("Nothing was changed. Send the same request again in a moment."),
}
MAX_URL: Final = 2000

_Url = Annotated[
    str,
    Field(
        max_length=MAX_URL,
        description="Where events are posted: `https`, and an address of the public internet.",
        json_schema_extra={"format": "uri"},
    ),
]


def _without_card(text: str) -> str:
    if find(text):
        raise PydanticCustomError("card_number", "must not hold a card number or security code")
    return text


def _known_type(name: str) -> str:
    if name not in RESULT_TYPES:
        raise PydanticCustomError("invalid_value", f"must be one of {', '.join(RESULT_TYPES)}")
    return name


_Description = Annotated[
    str, Field(max_length=500, pattern=NO_NUL, description="For people."), AfterValidator(_without_card)
]


class RequestBody(BaseModel):
    """A request body. Unknown members are refused, so that a misspelt one is not silently ignored."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, strict=True, extra="forbid")


_Id = Annotated[str, Field(min_length=1, max_length=MAX_ID, pattern=NO_NUL)]
_Type = Annotated[str, Field(json_schema_extra={"enum": list(RESULT_TYPES)}), AfterValidator(_known_type)]
_Headers = Annotated[
    dict[str, str],
    Field(
        description=(
            f"Headers to send with each delivery, such as an `Authorization` of yours: at most {MAX_HEADERS}. They are stored "
            "encrypted, and only their names are shown again. Replaces all earlier ones. Reserved: `Content-*`, `Host`, "
            "`User-Agent`, `traceparent`, `tracestate`, `Webhook-*`, and headers of the connection."
        ),
        json_schema_extra={
            "maxProperties": MAX_HEADERS,
            "propertyNames": {"pattern": r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$"},
            "additionalProperties": {"type": "string", "maxLength": 2000, "pattern": r"^[!-~]([ -~]*[!-~])?$"},
        },
    ),
]
_Asymmetric = Annotated[
    bool, Field(description="Also sign deliveries with `v1a` (Ed25519), which the webhook's `publicKey` verifies.")
]


class _Selection(RequestBody):
    types: list[_Type] | None = Field(
        None, min_length=1, description="The event types to subscribe to; null for all, including future ones."
    )
    integration_account_ids: list[_Id] | None = Field(
        None, min_length=1, max_length=500, description="Only events of these integration accounts; null for all."
    )
    property_ids: list[_Id | int] | None = Field(
        None, min_length=1, max_length=500, description="Only events of these properties; null for all."
    )

    def terms(self) -> WebhookTerms:
        renamed = {"integration_account_ids": "account_ids", "asymmetric_signature": "asymmetric"}
        given = {renamed.get(name, name): getattr(self, name) for name in self.model_fields_set - {"enabled"}}
        if given.get("property_ids"):
            given["property_ids"] = [str(each) for each in given["property_ids"]]
        return cast("WebhookTerms", given)


class NewWebhook(_Selection):
    """A URL to which the workspace's results are posted."""

    url: _Url
    description: _Description = ""
    headers: _Headers = Field(default_factory=dict)
    asymmetric_signature: _Asymmetric = False


class WebhookChange(_Selection):
    """Changes to a webhook. Omitted fields stay unchanged."""

    # These defaults mark a missing field; they have no meaning and are not published.
    url: _Url = Field(default_factory=str)
    description: _Description = Field(default_factory=str)
    headers: _Headers = Field(default_factory=dict)
    asymmetric_signature: _Asymmetric = Field(default_factory=bool)
    enabled: bool = Field(
        default_factory=bool, description="False: nothing more is sent to it, including waiting deliveries."
    )


_OVERLAP: Final = "How long deliveries are also signed with the old secret, in seconds."


class Rotation(RequestBody):
    """Terms of replacing a webhook's secret."""

    overlap_seconds: Annotated[
        int, Field(ge=0, le=MAX_OVERLAP_SECONDS, description=_OVERLAP), BeforeValidator(whole)
    ] = DEFAULT_OVERLAP_SECONDS


Body = TypeVar("Body", bound=RequestBody)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Which page to return. `status` selects deliveries."""

    cursor: int
    limit: int
    status: DeliveryStatus | None = None


async def read_request_body(request: Request, model: type[Body], *, optional: bool = False) -> Body | Problem:
    """The valid body of the request. If it is `optional`, no body means an empty object. Raises `ClientDisconnect`."""
    received = HttpRequest(request.scope, request.receive)
    content = await received.body(MAX_BODY_BYTES, 10.0)
    if isinstance(content, BodyFault):
        return _UNREAD[content]
    if optional and not content:
        content = b"{}"
    elif not received.is_sent_as(JSON_BODY):
        wanted = "The body must be JSON in UTF-8, not compressed, sent with Content-Type: application/json."
        return received.with_media_type(catalogue.UNSUPPORTED_MEDIA_TYPE.problem(wanted))
    try:
        body = read_object(model, content)
    except MalformedJson as error:
        return catalogue.MALFORMED_JSON.problem(f"The body is not one JSON document: {error}.")
    return invalid(body) if isinstance(body, list) else body


def invalid(faults: Sequence[FieldFault]) -> Problem:
    return catalogue.VALIDATION_FAILED.problem(summary_of(faults), faults=tuple(faults))


def read_page_query(request: Request, *, of_status: bool = False) -> PageQuery | Problem:
    asked = parameters.parameters_of(request.scope)
    limit, cursor = parameters.read_limit(asked), parameters.read_cursor(asked)
    faults = [fault for fault in (limit, cursor) if isinstance(fault, FieldFault)]
    wanted = set(asked.get("status", ())) if of_status else set()
    if len(wanted) > 1:
        faults.append(parameters.contradictory("status"))
    elif not wanted <= set(DeliveryStatus):
        faults.append(FieldFault("/status", "invalid_value", f"must be one of {', '.join(DeliveryStatus)}"))
    if faults or isinstance(limit, FieldFault) or isinstance(cursor, FieldFault):
        return parameters.invalid_query(faults)
    return PageQuery(cursor, limit, DeliveryStatus(wanted.pop()) if wanted else None)
