"""What costs less for every reservation: frozen dataclasses that are cheap to create, JSON, and the booking-engine request in the
form that nearly all have, read and written by msgspec in a third of pydantic's time. Pure.

That form is derived from pydantic's model: its fields, and of each type the values on which both libraries agree. So a request of
this form is exactly the `BookingEngineRequest` that pydantic would read, field by field, and serializes to the same bytes; a test
compares them. Pydantic reads every other request, valid or not. The form has no card: reading one costs too little to matter.
"""

from datetime import date
from decimal import Decimal
from functools import reduce
from math import ceil, floor
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
import orjson
from msgspec import Meta, Struct
from msgspec.structs import astuple
from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json, to_json

from forwarder.reservation.request import (
    MAX_DECIMALS,
    NO_NUL,
    NORMALIZERS,
    BookingEngineRequest,
    CardDetails,
    ReservationRequest,
    json_number,
)

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from dataclasses import dataclass

    def value(*, frozen: bool, slots: bool) -> object:
        """As `dataclass`, with the same arguments; but only the type checker refuses writing to a field. Python freezes a value by
        setting each field through a function, which takes three times as long."""
        # Hashed by its fields like a frozen one, though `dataclass` cannot know that its fields are never written.
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["AnyRequest", "Usual", "UsualRequest", "decoded", "form_decoder", "given", "is_usual", "json_text"]
__all__ += ["max_names", "read_json", "read_usual", "value", "with_price", "write_usual"]

# --- JSON: orjson writes in a third of pydantic's time; msgspec reads in half of it and, unlike orjson, keeps any integer ---

# Pydantic and orjson write these two types each in its own form.
_OF_PYDANTIC: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_READER: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()


def json_text(value: Any) -> bytes:
    """`value` as JSON, byte for byte as pydantic writes it; NaN and infinity become null. Raises pydantic's errors."""
    try:
        return orjson.dumps(value, option=_OF_PYDANTIC)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits, a Decimal, …
        return to_json(value, inf_nan_mode="null")


def max_names(document: bytes) -> int:
    """An upper bound of the number of names in all objects, without parsing; exact if no text looks like a name."""
    return document.translate(None, b" \t\r\n").count(b'":')


def read_json(text: bytes) -> Any:
    """As pydantic reads `text`: a repeated name has its last value. Raises `ValueError` for deep nesting, NaN, half of a pair, …"""
    try:
        return _READER.decode(text)
    except (ValueError, RecursionError):  # a number beyond the range of floats, …
        return from_json(text, allow_inf_nan=False)


# --- the usual form of a model ---


class Usual(Struct, frozen=True, omit_defaults=True, gc=False):
    """An object in the usual form, with the fields of its model."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class UsualRequest(Usual, frozen=True):
    """As `BookingEngineRequest`."""

    @property
    def total_price(self) -> Decimal:
        """The amount; `written_price` is its JSON number."""
        return Decimal(repr(self.written_price))


_UNDERSTOOD: Final = set(
    "type metadata strict ref min_length max_length pattern to_upper ge gt le lt allow_inf_nan expected schema choices function "
    "json_schema_input_schema cls config custom_init root_model model_name fields computed_fields validation_alias "
    "serialization_alias default title extra_fields_behavior validate_by_alias validate_by_name".split()
)
"""The parts of pydantic's core schemas that are translated, or mean nothing here. Any other might change what is accepted."""

_forms: dict[type[BaseModel], Any] = {}
U = TypeVar("U", bound=Usual)


def form_decoder(model: type[BaseModel], base: type[U]) -> msgspec.json.Decoder[U] | None:
    """Reads the usual form of `model`, a subclass of `base`. An optional field for which msgspec has no type that accepts only what
    pydantic accepts is None in it: an object with that field is not in this form. None if another field has none."""
    form = _form(model, base)
    return None if form is None else msgspec.json.Decoder(form)


def _form(model: type[BaseModel], base: type[Usual]) -> Any:
    if model not in _forms:
        _forms[model] = None
        schema = TypeAdapter(model).core_schema
        if schema["type"] != "model" or not _is_understood(schema, schema["config"]) or schema["custom_init"]:
            return None
        inside = schema["schema"]
        if inside["type"] != "model-fields" or not _is_understood(inside) or inside["computed_fields"]:
            return None
        fields, absent = list[Any](), dict[str, None]()
        for name, field in inside["fields"].items():
            of, alias = field["schema"], field["validation_alias"]
            default: Any = msgspec.NODEFAULT
            if of["type"] == "default":
                default, of = of.get("default", ...), of["schema"]
            known = _is_understood(field) and alias == field["serialization_alias"]
            written, kind = ("written_price", _price(of)) if name == "total_price" else (name, _equivalent(of))
            if not known or default not in (None, msgspec.NODEFAULT) or (kind is None and default is not None):
                return None
            if kind is None:
                absent[name] = None
            else:
                fields.append((written, kind, msgspec.field(name=alias, default=default)))
        _forms[model] = msgspec.defstruct(
            f"Usual{model.__name__}", fields, bases=(base,), namespace=absent, kw_only=True
        )
    return _forms[model]


def _is_understood(*schemas: Any) -> bool:
    return all(schema.keys() <= _UNDERSTOOD for schema in schemas)


def _equivalent(schema: Any) -> Any:
    """The type whose values msgspec reads as pydantic reads them by `schema`; None if there is none."""
    if not _is_understood(schema):
        return None
    limits = {name: schema[name] for name in ("min_length", "max_length", "ge", "gt", "le", "lt") if name in schema}
    match schema:
        case {"type": "str", **rest}:
            pattern, to_upper = rest.get("pattern", NO_NUL), rest.get("to_upper")
            if pattern != NO_NUL or to_upper:  # `decoded` refuses NUL in any text
                # On printable ASCII the dialects of regular expressions agree.
                characters = "[ -`{-~]*" if to_upper else "[ -~]*"
                limits["pattern"] = rf"\A(?={characters}\Z)(?:{pattern})"
            return Annotated[str, Meta(**limits)]
        case {"type": "int"}:
            return Annotated[int, Meta(**limits)]
        case {"type": "date"} if not limits:
            return date
        case {"type": "literal", "expected": values}:
            return Literal[tuple(values)]
        case {"type": "nullable", "schema": inner}:
            kind = _equivalent(inner)
            return None if kind is None else kind | None
        case {"type": "union", "choices": choices}:
            kinds = [kind for kind in map(_equivalent, choices) if kind is not None]
            return reduce(or_, kinds) if kinds else None
        case {"type": "function-before", "function": {"function": made}, "schema": inner} if made in NORMALIZERS:
            return _equivalent(inner)
        case {"type": "model", "cls": model} if model is not CardDetails:
            return _form(model, Usual)
    return None


def _price(schema: Any) -> Any:
    """A JSON number within the limits of the decimal amount; `is_usual` checks its digits."""
    lowest, highest = schema["schema"]["ge"], schema["schema"]["le"]
    whole = Annotated[int, Meta(ge=ceil(lowest), le=floor(highest))]
    return whole | Annotated[float, Meta(ge=float(lowest), le=float(highest))]


# --- requests in this form ---

AnyRequest = ReservationRequest | UsualRequest  # a parsed request, by either reader
T = TypeVar("T")

_DECODER: Final = form_decoder(BookingEngineRequest, UsualRequest)
write_usual: Final = msgspec.json.Encoder().encode  # the published form of a `UsualRequest`


def read_usual(body: bytes) -> UsualRequest | None:
    """The request in `body`; None if it does not have this form."""
    request = decoded(_DECODER, body)
    return request if request is not None and is_usual(request, max_names(body)) else None


def decoded(decoder: msgspec.json.Decoder[T] | None, document: bytes) -> T | None:
    """`document` decoded; None if it does not fit the type, or contains NUL, which databases refuse."""
    if decoder is None or b"\\u0000" in document:
        return None
    try:
        return decoder.decode(document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def is_usual(request: UsualRequest, names: int) -> bool:
    """Whether a `request` just decoded from an object with `names` names used all of them, with an exact price. With more names the
    object has an unknown one, or one twice. Turns a whole price into an integer."""
    price = request.written_price
    if type(price) is float:
        if price == 0.0:  # may be -0.0
            return False
        if price.is_integer():
            msgspec.structs.force_setattr(request, "written_price", int(price))
        elif "." not in repr(price)[-1 - MAX_DECIMALS :]:  # noise of floating point, perhaps
            return False
    guest = request.guest
    values = (*astuple(request), *astuple(guest), *astuple(guest.address))
    return names == len(values) - values.count(None)


def with_price(request: AnyRequest, price: Decimal) -> AnyRequest:
    if isinstance(request, UsualRequest):
        return msgspec.structs.replace(request, written_price=json_number(price))
    return request.model_copy(update={"total_price": price})


def given(request: AnyRequest) -> dict[str, Any]:
    """The fields that a request has, by their JSON names."""
    if isinstance(request, UsualRequest):
        fields: dict[str, Any] = msgspec.to_builtins(request)
        return fields
    return request.model_dump(by_alias=True, exclude_none=True)
