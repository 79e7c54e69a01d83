"""The booking-engine request in the form that nearly all have, read and written by msgspec in a third of pydantic's time. Pure.

A request of this form is exactly the `BookingEngineRequest` that pydantic would read, field by field, and serializes to the
same bytes; a test compares them. Pydantic reads every other request, valid or not: this form is narrower wherever the two could
differ, and has no card, because reading one does not cost enough to matter.
"""

from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from forwarder.reservation.json_text import max_names
from forwarder.reservation.request import (
    MAX_DECIMALS,
    MAX_GUESTS,
    MAX_PRICE,
    Country,
    MerchantOfRecord,
    ReservationRequest,
    json_number,
)

_MAX_INTEGER: Final = 2**63 - 1
# ASCII only, on which all regex dialects agree.
_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_EMAIL: Final = rf"\A{_ATOM}(\.{_ATOM})*@{_ATOM}(\.{_ATOM})+\Z"

_ShortText = Annotated[str, Meta(max_length=256)]
_LongText = Annotated[str, Meta(max_length=10_000)]
_Identifier = Annotated[str, Meta(max_length=128, pattern=r"\A[!-~]+\Z")] | Annotated[int, Meta(ge=0, le=_MAX_INTEGER)]
_TextOrNumber = _ShortText | Annotated[int, Meta(gt=-(2**63), le=_MAX_INTEGER)]
_Count = Annotated[int, Meta(ge=0, le=MAX_GUESTS)]
_Price = Annotated[int, Meta(ge=0, le=int(MAX_PRICE))] | Annotated[float, Meta(ge=0, le=float(MAX_PRICE))]


class UsualAddress(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """As `Address`."""

    line1: _ShortText
    line2: _ShortText
    postal_code: _ShortText
    city: _ShortText
    state: _ShortText
    country: Country


class UsualGuest(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    """As `Guest`."""

    name: _ShortText
    first_name: _ShortText
    last_name: _ShortText
    email: Annotated[str, Meta(max_length=254, pattern=_EMAIL)]
    phone: _TextOrNumber | None = None
    address: UsualAddress


class UsualRequest(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    """As `BookingEngineRequest`, with its fields in the same order."""

    property_id: _Identifier
    arrival_date: date
    departure_date: date
    arrival_estimated_time: _TextOrNumber | None = None
    departure_estimated_time: _TextOrNumber | None = None
    number_of_adults: _Count | None = None
    number_of_children: _Count | None = None
    number_of_infants: _Count | None = None
    number_of_pets: _Count | None = None
    notes: _LongText | None = None
    comments: _LongText | None = None
    status: Annotated[str, Meta(pattern=r"\A[Cc][Oo][Nn][Ff][Ii][Rr][Mm][Ee][Dd]\Z")] | None = None
    payment_provider_id: _TextOrNumber | None = None
    mor_channel: MerchantOfRecord
    room_id: _Identifier
    guest: UsualGuest
    number_of_guests: Annotated[int, Meta(ge=1, le=MAX_GUESTS)]
    written_price: _Price = msgspec.field(name="totalPrice")
    currency: Annotated[str, Meta(pattern=r"\A[A-Z]{3}\Z")]
    payment_provider_key: _LongText | None = None
    transaction_id: _ShortText | None = None
    promotion_code: _ShortText | None = None

    @property
    def total_price(self) -> Decimal:
        """The amount; `written_price` is its JSON number."""
        return Decimal(repr(self.written_price))


AnyRequest = ReservationRequest | UsualRequest
"""A parsed request, by either reader."""

T = TypeVar("T")

_DECODER: Final = msgspec.json.Decoder(UsualRequest)
_ENCODER: Final = msgspec.json.Encoder()
_NUL: Final = b"\\u0000"


def read_usual(body: bytes) -> UsualRequest | None:
    """The request in `body`; None if it does not have this form."""
    request = decoded(_DECODER, body)
    return request if request is not None and is_usual(request, max_names(body)) else None


def decoded(decoder: msgspec.json.Decoder[T], document: bytes) -> T | None:
    """`document` decoded; None if it does not fit the type, or contains NUL, which databases refuse."""
    if _NUL in document:
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
    return names == _names(request)


def write_usual(request: UsualRequest) -> bytes:
    """Its published form."""
    return _ENCODER.encode(request)


def with_price(request: AnyRequest, price: Decimal) -> AnyRequest:
    """The same request for another price."""
    if isinstance(request, UsualRequest):
        return msgspec.structs.replace(request, written_price=json_number(price))
    return request.model_copy(update={"total_price": price})


def given(request: AnyRequest) -> dict[str, Any]:
    """The fields that a request has, by their JSON names."""
    if isinstance(request, UsualRequest):
        fields: dict[str, Any] = msgspec.to_builtins(request)
        return fields
    return request.model_dump(by_alias=True, exclude_none=True)


def _names(request: UsualRequest) -> int:
    fields = given(request)
    guest = fields["guest"]
    return len(fields) + len(guest) + len(guest["address"])
