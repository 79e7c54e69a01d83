"""The two reservation requests of the contract (sections 2.1 and 2.2): fields, types, and limits of our own.

String-or-number fields keep their form, except that a whole number becomes an integer: 7.0 is 7. Unknown fields are dropped, so
that nothing a caller adds (a card number under another name, say) travels further. Money is `Decimal` internally and a JSON
number externally, without floating-point noise. An empty value of an optional field that cannot be empty (a currency, an e-mail
address, a number of guests) counts as missing.
"""

from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

MAX_NIGHTS = 365
MAX_GUESTS = 1000
MAX_BODY_BYTES = 64 * 1024
MAX_PRICE = Decimal(10**12)

# Databases refuse U+0000 in a text.
NO_NUL = r"^[^\x00]*$"
PRINTABLE = r"^[ -~]*$"
# Regex dialects (Rust, ECMAScript, Python) differ in what is blank: this names all that is blank in any of them.
NOT_BLANK = r"^[^\x00]*[^\x00\s\x1c-\x1f\x85\ufeff][^\x00]*$"
CURRENCY = r"^[A-Z]{3}$"
CURRENCY_IN_ANY_CASE = r"^[A-Za-z]{3}$"
CONFIRMED = "^[Cc][Oo][Nn][Ff][Ii][Rr][Mm][Ee][Dd]$"
# The shape of an address that mail can reach: a local part, one @, a domain of at least two labels; no specials of RFC 5322.
_ATOM = r"[^@\s\x85\ufeff\x00-\x1f<>()\[\],;:\\\x22.]+"
EMAIL = rf"^{_ATOM}(\.{_ATOM})*@{_ATOM}(\.{_ATOM})+$"


MAX_DECIMALS: Final = 4  # the most of any currency
_MAX_PRICE: Final = float(MAX_PRICE)


def _price(value: object) -> object:
    # A Decimal would also take a JSON string or a boolean; the contract says number.
    if isinstance(value, str | bool):
        raise PydanticCustomError(
            "decimal_type" if isinstance(value, bool) else "number_as_string", "a number is expected"
        )
    if not isinstance(value, float) or not abs(value) <= _MAX_PRICE:  # NaN is no larger, and no smaller
        return value
    # The digits of the float as written, not those of its binary fraction.
    text = str(value)
    amount = Decimal(text)
    if "." in text[-1 - MAX_DECIMALS :]:  # the common case: few decimals, no noise
        return amount
    # Noise of less than a millionth: 3 * 33.10 is 99.30000000000001 in floating point, and means 99.30. More is refused.
    rounded = amount.quantize(Decimal(1).scaleb(-MAX_DECIMALS), ROUND_HALF_EVEN)  # fine enough for every currency
    return rounded if abs(rounded - amount) < Decimal("0.000001") else amount


_MAX_EXACT_FLOAT: Final = 2**53 - 1  # 2^53 may have been written as 2^53 + 1
_MAX_INTEGER: Final = 2**63 - 1
INEXACT: Final = "inexact_number"  # the error type for a whole number that floating point may not represent exactly


def whole(value: object) -> object:
    """A whole number in any notation as an integer; anything else unchanged, to be refused."""
    # In JSON Schema, and in many programs, 2.0 is an integer like 2. Beyond 2^53 it may differ from the written number.
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT_FLOAT else value


def _whole_or_inexact(value: object) -> object:
    """As `whole`; refuses a value that may differ from the written number as `INEXACT`, or as out of the bounds of integers."""
    if not isinstance(value, float) or not value.is_integer():
        return value
    if _MAX_EXACT_FLOAT < abs(value) < _MAX_INTEGER:
        raise PydanticCustomError(INEXACT, "an exact number is expected")
    return int(value)


def _given(value: object) -> object:
    return None if value == "" else value


def _absent_if_zero(value: object) -> object:
    return None if isinstance(value, int | float) and not isinstance(value, bool) and value == 0 else value


def _written_as_a_day(value: object) -> str:
    # Pydantic would also accept numbers, and the text of one, as seconds since 1970.
    if isinstance(value, str) and len(value) == len("YYYY-MM-DD") and value[4] == value[7] == "-":
        return value
    raise PydanticCustomError("date_type", "a date is expected")


def json_number(amount: Decimal) -> float | int:
    """A decimal amount as the JSON number with the same digits."""
    return int(amount) if amount == amount.to_integral_value() else float(amount)


_Int = Annotated[int, Field(strict=True, ge=0, le=_MAX_INTEGER)]
_ShortText = Annotated[str, Field(max_length=256, pattern=NO_NUL)]
_LongText = Annotated[str, Field(max_length=10_000, pattern=NO_NUL)]

Identifier = Annotated[
    Annotated[str, Field(min_length=1, max_length=128, pattern=NOT_BLANK)] | _Int, BeforeValidator(_whole_or_inexact)
]
TextOrNumber = (
    _ShortText
    | Annotated[int, Field(strict=True, gt=-(2**63), le=_MAX_INTEGER)]
    # Within the same bounds. Only a number written as a float costs the call.
    | Annotated[
        float, Field(strict=True, allow_inf_nan=False, gt=-(2**63), lt=2**63), AfterValidator(_whole_or_inexact)
    ]
)
Day = Annotated[date, BeforeValidator(_written_as_a_day)]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_GUESTS), BeforeValidator(whole)]
Guests = Annotated[int, Field(strict=True, ge=1, le=MAX_GUESTS), BeforeValidator(whole)]
Price = Annotated[
    Decimal,
    Field(ge=0, le=MAX_PRICE, allow_inf_nan=False),
    BeforeValidator(_price),
    PlainSerializer(json_number, return_type=float | int, when_used="json"),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": _MAX_PRICE}),
]
Currency = Annotated[
    str,
    StringConstraints(pattern=CURRENCY_IN_ANY_CASE, to_upper=True),
    WithJsonSchema({"type": "string", "pattern": CURRENCY}),
]
Email = Annotated[str, Field(max_length=254, pattern=EMAIL)]
_Empty = Literal[""]
OptionalCurrency = Annotated[Currency | None, BeforeValidator(_given, json_schema_input_type=Currency | _Empty | None)]
OptionalEmail = Annotated[Email | None, BeforeValidator(_given, json_schema_input_type=Email | _Empty | None)]
OptionalRoom = Annotated[Identifier | None, BeforeValidator(_given, json_schema_input_type=Identifier | _Empty | None)]
OptionalGuests = Annotated[Guests | None, BeforeValidator(_absent_if_zero, json_schema_input_type=Count | None)]


def _number_as_text(value: object) -> object:
    number = whole(value)
    return str(number) if type(number) is int and 0 <= number <= _MAX_INTEGER else value


def _upper_code(value: object) -> object:
    return value.upper() if isinstance(value, str) and value.isascii() else value


NORMALIZERS: Final = frozenset({whole, _whole_or_inexact, _written_as_a_day, _number_as_text, _upper_code})
"""Validators that leave a value alone if it is in the field's usual notation: of the field's own JSON type, or one of its codes."""

_CardNumber = Annotated[str, Field(max_length=64, pattern=NO_NUL)]
_CardText = Annotated[str, Field(max_length=16, pattern=NO_NUL)]
_CardInt = Annotated[int, Field(ge=0, lt=10**16)]
# A JSON number becomes the text of its digits.
PostalCode = Annotated[_ShortText, BeforeValidator(_number_as_text, json_schema_input_type=_ShortText | _Int)]
CardNumber = Annotated[_CardNumber, BeforeValidator(_number_as_text, json_schema_input_type=_CardNumber | _Int)]
CardText = Annotated[_CardText, BeforeValidator(_number_as_text, json_schema_input_type=_CardText | _CardInt)]

# fmt: off
Country = Literal[
    "AF", "AX", "AL", "DZ", "AS", "AD", "AO", "AI", "AQ", "AG", "AR", "AM", "AW", "AU", "AT", "AZ", "BS", "BH", "BD",
    "BB", "BY", "BE", "BZ", "BJ", "BM", "BT", "BO", "BQ", "BA", "BW", "BV", "BR", "IO", "BN", "BG", "BF", "BI", "CV",
    "KH", "CM", "CA", "KY", "CF", "TD", "CL", "CN", "CX", "CC", "CO", "KM", "CG", "CD", "CK", "CR", "HR", "CU", "CW",
    "CY", "CZ", "DK", "DJ", "DM", "DO", "EC", "EG", "SV", "GQ", "ER", "EE", "SZ", "ET", "FK", "FO", "FJ", "FI", "FR",
    "GF", "PF", "TF", "GA", "GM", "GE", "DE", "GH", "GI", "GR", "GL", "GD", "GP", "GU", "GT", "GG", "GN", "GW", "GY",
    "HT", "VA", "HN", "HK", "HU", "IS", "IN", "ID", "IR", "IQ", "IE", "IM", "IL", "IT", "JM", "JP", "JE", "JO", "KZ",
    "KE", "KI", "KW", "KG", "LA", "LV", "LB", "LS", "LR", "LY", "LI", "LT", "LU", "MO", "MG", "MW", "MY", "MV", "ML",
    "MT", "MH", "MQ", "MR", "MU", "MX", "FM", "MD", "MC", "MN", "ME", "MS", "MA", "MZ", "MM", "NA", "NR", "NP", "NL",
    "NZ", "NI", "NE", "NG", "MK", "NO", "OM", "PK", "PW", "PS", "PA", "PG", "PY", "PE", "PH", "PL", "PT", "PR", "QA",
    "RO", "RU", "RW", "KN", "LC", "VC", "WS", "SM", "SA", "SN", "RS", "SC", "SL", "SG", "SK", "SI", "SB", "SO", "ZA",
    "KR", "ES", "LK", "SD", "SR", "SE", "CH", "SY", "TW", "TJ", "TZ", "TH", "TL", "TG", "TO", "TN", "TR", "TM", "TV",
    "UG", "UA", "AE", "GB", "US", "UY", "UZ", "VU", "VE", "VN", "YE", "ZM", "ZW",
]
# fmt: on


class Part(BaseModel):
    """An object of a body."""

    model_config = ConfigDict(
        alias_generator=to_camel, frozen=True, extra="ignore", validate_by_name=False, validate_by_alias=True
    )


class GeneralAddress(Part):
    """Address parts of the general operation; the country is free text there."""

    line1: _ShortText | None = None
    line2: _ShortText | None = None
    postal_code: PostalCode | None = None
    city: _ShortText | None = None
    state: _ShortText | None = None
    country: _ShortText | None = None


class GeneralGuest(Part):
    """The guest of the general operation; every field is optional."""

    name: _ShortText | None = None
    first_name: _ShortText | None = None
    last_name: _ShortText | None = None
    email: OptionalEmail = None
    phone: TextOrNumber | None = None
    address: GeneralAddress | None = None


class Address(Part):
    """Address of the booking-engine operation; the country is one of the ISO 3166-1 alpha-2 codes of section 2.4."""

    line1: _ShortText
    line2: _ShortText
    postal_code: PostalCode
    city: _ShortText
    state: _ShortText
    country: Annotated[Country, BeforeValidator(_upper_code)]


class Guest(Part):
    """The guest of the booking-engine operation; only the phone may be missing."""

    name: _ShortText
    first_name: _ShortText
    last_name: _ShortText
    email: Email
    phone: TextOrNumber | None = None
    address: Address


class CardDetails(Part):
    """A payment card as the caller sent it. Its `repr` shows nothing, so that no log line or error can."""

    card_number: CardNumber | None = None
    card_holder_name: _ShortText | None = None
    expiry_month: CardText | None = None
    expiry_year: CardText | None = None
    cvv: CardText | None = None

    def __repr__(self) -> str:
        return "CardDetails(sealed from sight)"

    __str__ = __repr__


class _Stay(Part):
    property_id: Identifier
    arrival_date: Day
    departure_date: Day
    arrival_estimated_time: TextOrNumber | None = None
    departure_estimated_time: TextOrNumber | None = None
    number_of_adults: Count | None = None
    number_of_children: Count | None = None
    number_of_infants: Count | None = None
    number_of_pets: Count | None = None
    notes: _LongText | None = None
    comments: _LongText | None = None
    status: Annotated[str, Field(pattern=CONFIRMED)] | None = None
    payment_provider_id: TextOrNumber | None = None


class BookingEngineRequest(_Stay):
    """Section 2.1: the request of a direct-booking website or its provider."""

    mor_channel: Literal["SELF", "PMS"]
    room_id: Identifier
    guest: Guest
    number_of_guests: Guests
    total_price: Price
    currency: Currency
    payment_provider_key: _LongText | None = None
    transaction_id: _ShortText | None = None
    card_details: CardDetails | None = None
    promotion_code: _ShortText | None = None


class GeneralRequest(_Stay):
    """Section 2.2: the smaller, mostly optional form."""

    room_id: OptionalRoom = None
    guest: GeneralGuest
    number_of_guests: OptionalGuests = None
    total_price: Price | None = None
    currency: OptionalCurrency = None


ReservationRequest = BookingEngineRequest | GeneralRequest
Operation = Literal["booking-engine", "general"]


def fields_given(read: BaseModel) -> int:
    """How many known fields its JSON had, including those of the objects in it."""
    return len(read.model_fields_set) + sum(fields_given(part) for _, part in read if isinstance(part, BaseModel))


MODELS: dict[Operation, type[BookingEngineRequest] | type[GeneralRequest]] = {
    "booking-engine": BookingEngineRequest,
    "general": GeneralRequest,
}


@dataclass(frozen=True, slots=True)
class SealedCard:
    """Card details that only the holder of the private key named by `key_id` can open. `sealed` is base64."""

    key_id: str
    sealed: str


_TWO_DECIMALS = """
AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW
CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS
INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN
NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC
SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG
"""

CURRENCY_DECIMALS: dict[str, int] = {
    **dict.fromkeys(_TWO_DECIMALS.split(), 2),
    **dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split(), 0),
    **dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3),
    **dict.fromkeys("CLF UYW".split(), 4),
}
"""Currency code → number of decimals of its minor unit."""
