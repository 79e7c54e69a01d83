"""The reservation that a submission made, as the service shows it. Named as in the contract, in snake_case.

Amounts are decimals, times are aware, and statuses are plain text: the contract may add others, as it may add fields. Those that
this client does not know are in `raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from reservation_forwarder_client.problems import Problem


class Status:
    """The state of a submission, and so of its reservation."""

    PENDING: Final = "PENDING"
    """On its way. All others are outcomes."""
    CONFIRMED: Final = "CONFIRMED"
    REJECTED: Final = "REJECTED"
    """A rule, or the PMS, refused it: `problem` says why."""
    FAILED: Final = "FAILED"
    """It could not be delivered before its deadline."""
    IN_DOUBT: Final = "IN_DOUBT"
    """It may have been made. The service, or its operator, will find out."""
    CANCELLED: Final = "CANCELLED"


@dataclass(frozen=True, slots=True)
class LineItem:
    """One line of a breakdown."""

    name: str
    type: str
    total: Decimal


@dataclass(frozen=True, slots=True)
class BasePrice:
    """The price of the rooms."""

    total_base_price: Decimal
    breakdown: tuple[LineItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Fee:
    """Fees."""

    total_fee: Decimal
    breakdown: tuple[LineItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Tax:
    """Taxes."""

    total_tax: Decimal
    breakdown: tuple[LineItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Discount:
    """Discounts."""

    total_discount: Decimal
    breakdown: tuple[LineItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Finances:
    """What the stay costs, and what of that is paid."""

    total_price: Decimal
    currency: str
    total_paid: Decimal
    remaining_balance: Decimal
    base_price: BasePrice
    fee: Fee
    tax: Tax
    discount: Discount


@dataclass(frozen=True, slots=True)
class PrimaryGuest:
    """The guest."""

    name: str
    emails: tuple[str, ...] = ()
    mobile_numbers: tuple[str, ...] = ()
    nationality: str | None = None


@dataclass(frozen=True, slots=True)
class Codes:
    """Codes that open doors."""

    access_code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reservation:
    """The reservation record. It exists from the moment a worker has ingested the submission, in any status."""

    id: int
    request_id: str
    status: str
    created_at: datetime
    updated_at: datetime
    arrival_date: date
    departure_date: date
    nights: int
    property_id: int | str
    room_id: int | str
    number_of_guests: int
    primary_guest: PrimaryGuest
    source: str
    total_price: Decimal
    currency: str
    finances: Finances
    codes: Codes
    arrival_estimated_time: str = ""
    departure_estimated_time: str = ""
    notes: str | None = None
    payment_url: str = ""
    cancelled_at: datetime | None = None
    pms_reservation_id: str | None = None
    problem: Problem | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
