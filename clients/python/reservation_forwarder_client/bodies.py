"""What is sent, by the names of the contract: a type checker finds a field that is misspelt, missing or of another type.

Days may be `date`s and amounts `Decimal`s. The service checks values beyond their types, and names each fault.
"""

from datetime import date
from decimal import Decimal
from typing import Literal, NotRequired, TypedDict

Identifier = str | int
Day = str | date
"""`YYYY-MM-DD`, or a day. The time of a `datetime` would be refused."""
Amount = Decimal | float
Loose = str | float | None
"""What some systems count and others name: a phone number, a clock time, a website."""


class Address(TypedDict):
    """A guest's address, in full. `country` is an ISO 3166-1 alpha-2 code."""

    line1: str
    line2: str
    postalCode: str | int
    city: str
    state: str
    country: str


class Guest(TypedDict):
    """Who comes, of a booking engine's reservation."""

    name: str
    firstName: str
    lastName: str
    email: str
    phone: NotRequired[Loose]
    address: Address


class GeneralAddress(TypedDict, total=False):
    """An address as far as it is known."""

    line1: str | None
    line2: str | None
    postalCode: str | int | None
    city: str | None
    state: str | None
    country: str | None


class GeneralGuest(TypedDict, total=False):
    """Who comes, as far as it is known."""

    name: str | None
    firstName: str | None
    lastName: str | None
    email: str | None
    phone: Loose
    address: GeneralAddress | None


class CardDetails(TypedDict, total=False):
    """A card: sealed where it arrives, opened where it is pushed, and readable nowhere else."""

    cardNumber: str | int | None
    cardHolderName: str | None
    expiryMonth: str | int | None
    expiryYear: str | int | None
    cvv: str | int | None


class _Stay(TypedDict):
    """What both operations have."""

    propertyId: Identifier
    arrivalDate: Day
    departureDate: Day
    arrivalEstimatedTime: NotRequired[Loose]
    departureEstimatedTime: NotRequired[Loose]
    numberOfAdults: NotRequired[int | None]
    numberOfChildren: NotRequired[int | None]
    numberOfInfants: NotRequired[int | None]
    numberOfPets: NotRequired[int | None]
    notes: NotRequired[str | None]
    comments: NotRequired[str | None]
    status: NotRequired[str | None]
    paymentProviderId: NotRequired[Loose]


class BookingEngineReservation(_Stay):
    """A reservation with its payment arrangement, the guest in full, and perhaps a card."""

    morChannel: Literal["SELF", "PMS"]
    roomId: Identifier
    guest: Guest
    numberOfGuests: int
    totalPrice: Amount
    currency: str
    paymentProviderKey: NotRequired[str | None]
    transactionId: NotRequired[str | None]
    cardDetails: NotRequired[CardDetails | None]
    promotionCode: NotRequired[str | None]


class GeneralReservation(_Stay):
    """A reservation of which little need be known."""

    roomId: NotRequired[Identifier | None]
    guest: GeneralGuest
    numberOfGuests: NotRequired[int | None]
    totalPrice: NotRequired[Amount | None]
    currency: NotRequired[str | None]


Reservable = BookingEngineReservation | GeneralReservation
