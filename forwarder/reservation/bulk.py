"""Bulk submission: the form of an item, and parsing its text with all its faults. Pure."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, from_json

from forwarder.reservation.checks.faults import field_faults
from forwarder.reservation.checks.fields import (
    Reading,
    UnknownField,
    checked,
    cross_faults,
    hinted,
    read_exactly,
    refuse_hidden,
    unknown_fields,
)
from forwarder.reservation.checks.plausibility import Plausibility
from forwarder.reservation.json_text import max_names
from forwarder.reservation.problems.problem import Fault
from forwarder.reservation.request import (
    MAX_BODY_BYTES,
    MODELS,
    PRINTABLE,
    BookingEngineRequest,
    GeneralRequest,
    fields_given,
    whole,
)
from forwarder.reservation.submission import MAX_DEADLINE_SECONDS
from forwarder.reservation.usual import UsualRequest, decoded, is_usual

MAX_ITEMS: Final = 1_000
MAX_BULK_BYTES: Final = 8 * 1024 * 1024
MAX_ITEM_BYTES: Final = MAX_BODY_BYTES + 1024
"""The body limit of a single operation, and a little for the item around it."""

RESERVATION: Final = "/reservation"
"""JSON Pointer to an item's reservation."""


class _Item(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, extra="forbid", validate_by_name=False, validate_by_alias=True
    )

    idempotency_key: Annotated[str, Field(min_length=1, max_length=255, pattern=PRINTABLE)] | None = None
    deadline_seconds: (
        Annotated[int, Field(strict=True, ge=1, le=MAX_DEADLINE_SECONDS), BeforeValidator(whole)] | None
    ) = None


class BookingEngineItem(_Item):
    """A reservation of the booking-engine operation."""

    operation: Literal["booking-engine"]
    reservation: BookingEngineRequest


class GeneralItem(_Item):
    """A reservation of the general operation."""

    operation: Literal["general"]
    reservation: GeneralRequest


class UsualItem(Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """As `BookingEngineItem`, of a usual request."""

    operation: Literal["booking-engine"]
    reservation: UsualRequest
    idempotency_key: Annotated[str, Meta(min_length=1, max_length=255, pattern=r"\A[ -~]*\Z")] | None = None
    deadline_seconds: Annotated[int, Meta(ge=1, le=MAX_DEADLINE_SECONDS)] | None = None

    @property
    def names(self) -> int:
        """How many names it has in addition to those of its reservation."""
        return 2 + (self.idempotency_key is not None) + (self.deadline_seconds is not None)


BulkItem = BookingEngineItem | GeneralItem | UsualItem

_USUAL: Final = msgspec.json.Decoder(UsualItem)
_ITEM: Final[TypeAdapter[BookingEngineItem | GeneralItem]] = TypeAdapter(
    Annotated[BookingEngineItem | GeneralItem, Field(discriminator="operation")]
)


class ItemReading(NamedTuple):
    """An item, and the reading of its reservation, which replaces `item.reservation`."""

    item: BulkItem
    reading: Reading


def read_item(text: bytes, check: Plausibility | None = None) -> ItemReading | list[Fault]:
    """The item in `text`, or all its faults, each with its JSON Pointer into the item; then including the faults that `check`
    finds. Raises `MalformedJson`."""
    usual = decoded(_USUAL, text)
    if usual is not None and is_usual(usual.reservation, max_names(text) - usual.names):
        return _checked(usual, (), check)
    try:
        # Bypasses the adapter's `validate_json`, a mere wrapper.
        item = read_exactly(_ITEM.validator.validate_json, _ITEM.validator.validate_python, text)
    except ValidationError as error:
        return _faults(error, text, check)
    skipped = refuse_hidden(text, len(item.model_fields_set) + fields_given(item.reservation))
    unknown = unknown_fields(type(item.reservation), from_json(text)["reservation"]) if skipped else ()
    return _checked(item, unknown, check)


def _checked(item: BulkItem, unknown: Sequence[UnknownField], check: Plausibility | None) -> ItemReading | list[Fault]:
    read = checked(item.reservation, unknown, check)
    return [_in_item(fault) for fault in read] if isinstance(read, list) else ItemReading(item, read)


def _faults(error: ValidationError, text: bytes, check: Plausibility | None) -> list[Fault]:
    match error.errors(include_url=False, include_input=False)[0]["type"]:
        case "union_tag_not_found":
            return [Fault("/operation", "required", "is required")]
        case "union_tag_invalid":
            return [Fault("/operation", "invalid_value", "must be 'booking-engine' or 'general'")]
    by_pointer = field_faults(error, _place)
    document = from_json(text)
    if not isinstance(document, dict):
        return [*by_pointer.values()]
    operation, reservation = document["operation"], document.get("reservation")
    crossed = [_in_item(fault) for fault in cross_faults(operation, reservation, check)]
    faults = hinted(by_pointer, unknown_fields(MODELS[operation], reservation, RESERVATION))
    return [*faults, *(fault for fault in crossed if fault.pointer not in by_pointer)]


def _place(detail: ErrorDetails) -> tuple[int | str, ...]:
    # Pydantic reports the item's operation as the first step.
    return detail["loc"][1:]


def _in_item(fault: Fault) -> Fault:
    return Fault(RESERVATION + fault.pointer, fault.code, fault.detail)
