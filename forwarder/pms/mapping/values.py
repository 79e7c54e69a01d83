"""Values in a mapping: dotted paths into JSON, the fields of a booking by name, and how their values are written. Pure."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from forwarder.pms import sdk
from forwarder.pms.fields import as_text, code_of
from forwarder.reservation.request import CURRENCY_DECIMALS, Address, BookingEngineRequest, Guest


def nonsense(message: str) -> PydanticCustomError:
    """The error that a validator raises. `message` says what is wrong, and what would be right."""
    return PydanticCustomError("nonsense", "{message}", {"message": message})


# --- JSON paths ---

MISSING: Final = object()
"""The result of a path that leads nowhere, not even to null."""


def is_path(text: str) -> bool:
    """Whether `text` is a path of one or more steps."""
    return all(re.fullmatch(r"[^.\x00-\x20]{1,128}", step) for step in text.split("."))


def path_of(jsonpath: str) -> str:
    return jsonpath.removeprefix("$").replace("['", ".").replace("']", "").replace("[", ".").replace("]", "").strip(".")


def _checked(path: str) -> str:
    if path.startswith("$") or "[" in path:
        raise nonsense(f"{path} is JSONPath; here it is written " + (path_of(path) or '""'))
    if path and not is_path(path):
        raise nonsense("a path is names and positions with dots between, such as bookings.0.id; empty for the whole")
    return path


JsonPath = Annotated[str, AfterValidator(_checked)]
"""A path; the empty one leads to the whole document."""


def value_at(document: Any, path: str | None) -> Any:
    """The value at `path`, or `MISSING`. No path leads nowhere."""
    if path is None:
        return MISSING
    for step in path.split(".") if path else ():
        match document:
            case dict() if step in document:
                document = document[step]
            case list() if step.isdecimal() and int(step) < len(document):
                document = document[int(step)]
            case _:
                return MISSING
    return document


def texts_at(document: Any, path: str) -> list[str]:
    """The texts at `path`, where a step * matches every item of a list."""
    head, star, tail = path.partition("*")
    if not star:
        value = value_at(document, path)
        return [value] if isinstance(value, str) else []
    items = value_at(document, head.rstrip("."))
    return [text for item in items for text in texts_at(item, tail.lstrip("."))] if isinstance(items, list) else []


def same(value: Any, expected: Any) -> bool:
    """Whether two scalars are the same in JSON, where true is not 1."""
    return isinstance(value, bool) == isinstance(expected, bool) and bool(value == expected)


def assembled(values: Mapping[str, Any]) -> Any:
    """The document that has each value at its path. Gaps in the positions of a list are closed."""
    if "" in values:
        return values[""]
    parts: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        step, _, rest = path.partition(".")
        parts.setdefault(step, {})[rest] = value
    is_list = bool(parts) and all(map(str.isdecimal, parts))
    shaped = {step: assembled(parts[step]) for step in (sorted(parts, key=int) if is_list else parts)}
    return [*shaped.values()] if is_list else shaped


def clashes(paths: Iterable[str]) -> str:
    """Why `paths` cannot be those of one document; empty if they can."""
    children: dict[str, set[str]] = {}
    known = set(paths)
    for path in sorted(known):
        if not is_path(path):
            return f"{path!r} is no path: names and positions with dots between, such as guests.0.name"
        steps = path.split(".")
        for depth, step in enumerate(steps):
            parent = ".".join(steps[:depth])
            if depth and parent in known:
                return f"{parent} cannot be a value and have {path} below it"
            children.setdefault(parent, set()).add(step)
    for parent, below in sorted(children.items()):
        positions = sorted(int(step) for step in below if step.isdecimal())
        if positions and (len(positions) != len(below) or positions != list(range(len(positions)))):
            return f"{parent or 'the body'} is a list, whose positions are 0, 1, 2 … without a gap, and no names"
    return ""


# --- fields of a booking ---

Written = Literal["text", "number", "integer", "id", "minorUnits", "hour", "clockTime", "country"]
"""How a value is written. `id` is a whole number above 0; `minorUnits` is an amount in cents, or in the minor unit of its currency;
`hour` is the hour of a time, `clockTime` a time as 15:30:00, `country` a code of two letters. A value that one of the last three
cannot express goes into the notes; a booking with a value that another form cannot express is refused."""

PMS_ID: Final = "pmsReservationId"
PMS_GUEST_ID: Final = "pmsGuestId"


def _names(model: type[BaseModel], prefix: str = "") -> frozenset[str]:
    return frozenset(prefix + to_camel(name) for name in model.model_fields)


CARD_FIELDS: Final = _names(sdk.CardDetails, "card.")
_GUESTS: Final = ("numberOfAdults", "numberOfChildren", "numberOfInfants")

DERIVED: Final[Mapping[str, tuple[str, ...]]] = {
    "guest.first": ("guest.firstName", "guest.name"),
    "guest.last": ("guest.lastName", "guest.name"),
    "guests.total": ("numberOfGuests", *_GUESTS),
    "guests.adults": ("numberOfAdults", "numberOfGuests"),
    "guests.children": ("numberOfChildren", "numberOfInfants"),
}
"""Derived values → the fields that they come from: parts of a name, all guests, adults, and children with infants (for a PMS that
does not count infants)."""

SAID: Final = {name: of if name.startswith("guest.") else of[:1] for name, of in DERIVED.items()}
"""Derived values → the fields that they express completely: of a headcount, the first."""

FIELDS: Final = (
    (_names(BookingEngineRequest) - {"guest", "cardDetails", "status"})
    | (_names(Guest, "guest.") - {"guest.address"})
    | _names(Address, "guest.address.")
    | CARD_FIELDS
    | DERIVED.keys()
    | {"reference", "nights", PMS_ID, PMS_GUEST_ID}
)
"""Every name. `card.…` is only allowed in the body of a create, `pmsReservationId` in requests about one reservation, and
`pmsGuestId` in a create with `create.guest`."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not among `known`; empty if nothing is known."""
    among = sorted(known)
    near = get_close_matches(name, among, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(among)}" if among else ""


def _known(name: str) -> str:
    if name not in FIELDS:
        raise nonsense(f"there is no field {name!r}{nearest(name, FIELDS)}")
    return name


FieldName = Annotated[str, AfterValidator(_known)]


class DoesNotFit(ValueError):
    """A value of the booking cannot be written as the mapping demands. `name` is its field."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(f"The PMS takes {name} as {wanted}; this value is none.")
        self.name = name


def field_value(booking: sdk.Booking, name: str, pms_id: str | None = None) -> Any:
    """The value of a field; None if the booking has none."""
    match name.split("."):
        case ["reference"]:
            value: Any = booking.reference
        case ["nights"]:
            value = (booking.departure - booking.arrival).days
        case ["totalPrice"]:
            value = booking.total_price
        case ["guest", "name"]:
            value = booking.guest_name
        case ["guest", "first" | "last" as part]:
            value = sdk.first_and_last(booking)[0 if part == "first" else 1]
        case ["guests", "total"]:
            given = booking.fields.get("numberOfGuests")
            value = given if given is not None else sum(booking.fields.get(one) or 0 for one in _GUESTS) or None
        case ["guests", "adults" | "children" as part]:
            value = getattr(sdk.headcount(booking, infants_are_children=part == "children"), part)
        case ["guest", "address", part]:
            value = (booking.guest.get("address") or {}).get(part)
        case ["guest", part]:
            value = booking.guest.get(part)
        case ["card", part]:
            value = None if booking.card is None else booking.card.model_dump(by_alias=True).get(part)
        case _:
            value = pms_id if name == PMS_ID else booking.fields.get(name)
    return None if value == "" else value


def written(
    booking: sdk.Booking, name: str, value: Any, form: Written | None, date_format: str | None
) -> tuple[Any, bool]:
    """`value` as JSON, None if that form cannot express it; and whether it expresses all of it. Raises `DoesNotFit`."""
    if date_format is not None:
        return date.fromisoformat(str(value)).strftime(date_format), True
    match form:
        case "id":
            if re.fullmatch(r"(?=.*[1-9])[0-9]{1,18}", str(value)) is None:
                raise DoesNotFit(name, "a whole number above 0")
            return int(value), True
        case None:
            return (sdk.json_number(value) if isinstance(value, Decimal) else value), True
        case "text":
            return as_text(value), True
        case "minorUnits":
            decimals = CURRENCY_DECIMALS.get(booking.currency or "")
            units = None if decimals is None else _number(name, value, "number").scaleb(decimals)
            if units is None or units != units.to_integral_value():
                raise DoesNotFit(name, "an amount in the minor units of its currency")
            return int(units), True
        case "country":
            code = code_of(value)
            return code, code is not None
        case "hour" | "clockTime":
            time = re.fullmatch(r"(\d{1,2})(?::(\d{2}))?", str(value))
            if time is None or int(time[1]) >= 24:  # noqa: PLR2004 - hours
                return None, False
            if form == "hour":
                return int(time[1]), not int(time[2] or 0)
            return f"{int(time[1]):02d}:{time[2] or '00'}:00", True
        case _:
            number = _number(name, value, form)
            if form == "integer" and number != number.to_integral_value():
                raise DoesNotFit(name, "a whole number")
            return sdk.json_number(number), True


def _number(name: str, value: Any, form: str) -> Decimal:
    number = sdk.decimal(value)
    # A text that a number does not preserve: "00123", "1e5".
    if number is None or (isinstance(value, str) and format(number, "f") != value):
        raise DoesNotFit(name, "a whole number" if form == "integer" else "a number")
    return number
