"""The service's JSON as the client's own types, and the client's values as JSON and headers. Unknown fields are ignored. Pure."""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

RAW: Final = "raw"
"""A field of this name holds the members as they came, those that this client does not know included."""

_Shape = TypeVar("_Shape")
_Members = Mapping[str, Any]


class Malformed(ValueError):
    """It is not what the contract says."""


def members_of(body: bytes) -> _Members:
    """The members of a JSON object; decimals as they are written. Raises `Malformed`."""
    try:
        members = json.loads(body, parse_float=Decimal)
    except (
        ValueError,
        ArithmeticError,
        RecursionError,
    ) as error:  # an exponent that Decimal refuses, too deep a nesting
        raise Malformed(f"not JSON: {error}") from error
    if not isinstance(members, dict):
        raise Malformed(f"a JSON object was expected, not {type(members).__name__}")
    return members


def read(shape: type[_Shape], members: _Members) -> _Shape:
    """`members` as an instance of the dataclass `shape`, whose fields have the names of the contract in snake_case.
    Raises `Malformed` where a field without a default is missing, or a value is of another type."""
    if not isinstance(members, Mapping):
        raise Malformed(f"a JSON object was expected, not {type(members).__name__}")
    values: dict[str, Any] = {}
    for name, outside, hint in _fields(shape):  # type: ignore[arg-type]  # a class can be hashed
        if name == RAW:
            values[name] = members
        elif outside in members:
            try:
                values[name] = _value(hint, members[outside])
            except (TypeError, ValueError, ArithmeticError) as error:
                raise Malformed(f"{outside}: {error}") from error
    try:
        return shape(**values)
    except TypeError as error:
        raise Malformed(str(error)) from error


@cache
def _fields(shape: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    hints = get_type_hints(shape)
    return tuple((one.name, _camel(one.name), hints[one.name]) for one in dataclasses.fields(shape) if one.init)


def camel_case(members: Mapping[str, Any]) -> dict[str, Any]:
    """`members` with the names of the contract."""
    return {_camel(name): value for name, value in members.items()}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _value(hint: Any, value: Any) -> Any:
    """`value` as the contract's type `hint`. An empty text means none where the type allows it."""
    if get_origin(hint) in (Union, types.UnionType):
        return _one_of(get_args(hint), value)
    if get_origin(hint) is tuple:
        return tuple(_value(get_args(hint)[0], part) for part in _of_type(list, value))
    if dataclasses.is_dataclass(hint):
        return read(hint, _of_type(dict, value))  # type: ignore[arg-type]  # a type, since it is a hint
    if hint in _READ:
        return _READ[hint](value)
    return value if hint is Any or get_origin(hint) is Mapping else _of_type(hint, value)


def _one_of(hints: tuple[Any, ...], value: Any) -> Any:
    wanted = [hint for hint in hints if hint is not type(None)]
    if len(wanted) < len(hints) and (value is None or (value == "" and wanted[0] is not str)):
        return None
    if len(wanted) == 1:
        return _value(wanted[0], value)
    return _of_type(tuple(wanted), value)


def _of_type(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"unexpected {type(value).__name__}")
    return value


_READ: Final[Mapping[Any, Callable[[Any], Any]]] = {
    Decimal: lambda value: Decimal(_of_type((int, Decimal), value)),
    datetime: lambda value: datetime.fromisoformat(_of_type(str, value)),
    date: lambda value: date.fromisoformat(_of_type(str, value)),
}


def json_bytes(body: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """`body` as JSON: days as `YYYY-MM-DD`, decimals as numbers. Raises `TypeError` for what has no form in JSON, and `ValueError`
    for NaN and the infinities."""
    return json.dumps(body, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> str | float | dict[Any, Any] | list[Any]:
    match value:
        case date():
            return value.isoformat()
        case Decimal():
            # What a float writes down is what was meant, up to 15 digits: more than any amount has.
            return int(value) if value == value.to_integral_value() else float(value)
        case Mapping():
            return dict(value)
        case Sequence():
            return list(value)
        case _:
            raise TypeError(f"a {type(value).__name__} has no form in JSON")


def quoted(key: str) -> str:
    """`key` as a string of structured fields (RFC 8941, section 3.3.3), which `Idempotency-Key` is."""
    return '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def preference(wait: int | None) -> dict[str, str]:
    """The `Prefer` of one who waits so many seconds (RFC 7240); of one who says nothing, none."""
    if wait is None:
        return {}
    return {"Prefer": f"wait={wait}" if wait else "respond-async"}
