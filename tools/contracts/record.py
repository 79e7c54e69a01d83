"""The shape of the reservation record, and of the problem that may be in it."""

from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from forwarder.reservation.outcome import Status


def _left_out() -> NoReturn:
    raise TypeError("this shape is only described")


def maybe(description: str, **limits: Any) -> Any:
    """A field that is left out where there is nothing to say."""
    return Field(default_factory=_left_out, description=description, **limits)


Moment = Annotated[str, Field(description="UTC with milliseconds and `Z`.", json_schema_extra={"format": "date-time"})]
RequestId = Annotated[
    str, Field(description="The submission's identifier, the same for ever.", pattern="^rsv_[a-z2-7]{32}$")
]


class Part(BaseModel):
    """Names are camelCase outside."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


Day = Annotated[str, Field(json_schema_extra={"format": "date"})]


class Fault(Part):
    """One value at fault."""

    pointer: Annotated[str, Field(description="RFC 6901 JSON Pointer; of a query parameter `/` and its name.")]
    code: Annotated[str, Field(description="What is wrong with it: stable, for programs.")]
    detail: Annotated[str, Field(description="The same for people. Never quotes the value.")]


class Problem(Part):
    """A problem (RFC 9457). Programs branch on `code`; every code has its page at its `type`."""

    type: Annotated[str, Field(description="`/problems/<code>`.", json_schema_extra={"format": "uri-reference"})]
    title: Annotated[str, Field(description="The same for every problem of its code.")]
    status: Annotated[int, Field(ge=400, le=599)]
    detail: Annotated[str, Field(description="What is special about this one, for people.")]
    code: Annotated[str, Field(description="Stable.", pattern="^[a-z_]+$")]
    request_id: RequestId = maybe("The submission that it is about.")
    instance: str = maybe("Where that submission is read.", json_schema_extra={"format": "uri-reference"})
    errors: list[Fault] = maybe("Every value at fault.", min_length=1)
    similar_to: list[RequestId] = maybe("Of `similar_submission`: the earlier submission.")
    differing: list[str] = maybe("Of `similar_submission`: JSON Pointers of the fields in which the two differ.")
    transaction_of: RequestId = maybe("Of `transaction_reused`: the submission whose transaction it is.")
    reference: str = maybe("Of an internal error: what the operator finds it by.")
    scope: str = maybe("Of a key that lacks one: the scope that is needed.")


class LineItem(Part):
    """One line of a breakdown."""

    name: str
    type: Annotated[str, Field(examples=["RoomRate", "Fee", "Tax"])]
    total: float


class BasePrice(Part):
    """The price of the rooms."""

    total_base_price: float
    breakdown: list[LineItem]


class Fee(Part):
    """Fees."""

    total_fee: float
    breakdown: list[LineItem]


class Tax(Part):
    """Taxes."""

    total_tax: float
    breakdown: list[LineItem]


class Discount(Part):
    """Discounts."""

    total_discount: float
    breakdown: list[LineItem]


class Finances(Part):
    """What the stay costs and what of that is paid. Derived from `totalPrice` where the PMS does not say."""

    total_price: float
    currency: str
    total_paid: float
    remaining_balance: float
    base_price: BasePrice
    fee: Fee
    tax: Tax
    discount: Discount


class PrimaryGuest(Part):
    """The guest."""

    name: str
    emails: list[str]
    mobile_numbers: list[str]
    nationality: str | None


class Codes(Part):
    """Codes that open doors."""

    access_code: list[str]


class Reservation(Part):
    """The reservation record. It is there from the moment a worker took the submission in, whatever its status."""

    id: Annotated[int, Field(description="The reservation's identifier here.", ge=1)]
    created_at: Moment
    updated_at: Moment
    cancelled_at: Annotated[str, Field(description="As the other times; empty when not cancelled.")]
    arrival_date: Day
    departure_date: Day
    nights: Annotated[int, Field(ge=1)]
    property_id: Annotated[
        int | str, Field(description="A number where it is written as one, else the text as it came.")
    ]
    number_of_guests: Annotated[int, Field(ge=0)]
    primary_guest: PrimaryGuest
    source: str
    total_price: float
    currency: Annotated[str, Field(description="ISO 4217; empty where it is not known.")]
    status: Status
    arrival_estimated_time: Annotated[str, Field(description="Empty when not set.")]
    departure_estimated_time: Annotated[str, Field(description="Empty when not set.")]
    codes: Codes
    notes: str | None
    payment_url: Annotated[
        str, Field(description="Where the reservation can be paid; empty when there is no such place.")
    ]
    finances: Finances
    request_id: RequestId
    pms_reservation_id: Annotated[str | None, Field(description="The PMS's own identifier, once it has one.")]
    room_id: int | str
    problem: Problem = maybe("Why it is not confirmed.")
