"""What may be said in the calls that manage webhooks: their bodies, and every fault of one. Pure."""

from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from forwarder.notifier.webhooks import DEFAULT_OVERLAP_SECONDS, LONGEST_OVERLAP_SECONDS
from forwarder.reservation.problem import Fault
from forwarder.reservation.request import NO_NUL, whole
from forwarder.reservation.result import RESULT_TYPES
from forwarder.reservation.validation import read_object

LONGEST_URL: Final = 2000

_Url = Annotated[
    str,
    Field(
        max_length=LONGEST_URL,
        description="Where events are posted: `https`, and an address of the public internet.",
        json_schema_extra={"format": "uri"},
    ),
]
_Type = Annotated[str, Field(json_schema_extra={"enum": list(RESULT_TYPES)})]
_Types = Annotated[
    list[_Type] | None,
    Field(min_length=1, description="The types of events that it takes; null for all, and those to come."),
]
_Description = Annotated[str, Field(max_length=500, pattern=NO_NUL, description="For people.")]


class RequestBody(BaseModel):
    """A body. What is not a field of it is refused: a word that is misspelt would else be passed over."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, strict=True, extra="forbid")

    def faults(self) -> list[Fault]:
        """Those that its schema leaves."""
        return []


class _OfTypes(RequestBody):
    types: _Types = None

    def faults(self) -> list[Fault]:
        taken = ", ".join(RESULT_TYPES)
        return [
            Fault(f"/types/{index}", "invalid_value", f"must be one of {taken}")
            for index, each in enumerate(self.types or ())
            if each not in RESULT_TYPES
        ]


class NewWebhook(_OfTypes):
    """An address to which the results of the workspace are posted."""

    url: _Url
    description: _Description = ""


class WebhookChange(_OfTypes):
    """What is to be changed of a webhook. What is left out stays as it is."""

    # What stands here for a field that is left out means nothing, and is not published as its default.
    url: _Url = Field(default_factory=str)
    description: _Description = Field(default_factory=str)
    enabled: bool = Field(
        default_factory=bool, description="False: nothing more is sent to it, and what waits is not either."
    )

    def says(self, name: str) -> bool:
        """Whether that field is there."""
        return name in self.model_fields_set


class Rotation(RequestBody):
    """How a webhook's secret is put out of use."""

    overlap_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=LONGEST_OVERLAP_SECONDS,
            description="For how long deliveries are signed with the old secret too.",
        ),
        BeforeValidator(whole),
    ] = DEFAULT_OVERLAP_SECONDS


Body = TypeVar("Body", bound=RequestBody)


def read_body(model: type[Body], content: bytes) -> Body | list[Fault]:
    """The body in `content`, or its faults, all of them. Raises `MalformedJson`."""
    body = read_object(model, content)
    return body if isinstance(body, list) else body.faults() or body
