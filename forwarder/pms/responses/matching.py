"""Whether what a PMS shows can be the reservation that it was asked for, where it need not name our reference. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from forwarder.reservation.booking import Booking
from forwarder.reservation.parsing import day, decimal

_CENT: Final = Decimal("0.01")
_MAX_AMOUNT: Final = Decimal(10**12)


@dataclass(frozen=True, slots=True)
class Echo:
    """Under which names a PMS shows again what it was asked; empty for what it does not show, or not as it was sent."""

    arrival: str = ""
    departure: str = ""
    price: str = ""
    email: str = ""

    def contradicts(self, shown: Mapping[str, Any], booking: Booking) -> bool:
        """Whether any of them is present and differs from `booking`'s. Missing values, and values of another type, do not count."""
        return (
            _other_day(shown.get(self.arrival), booking.fields["arrivalDate"])
            or _other_day(shown.get(self.departure), booking.fields["departureDate"])
            or _other_price(shown.get(self.price), booking)
            or _other_email(shown.get(self.email), booking.guest.get("email"))
        )


def _other_day(shown: object, asked: str) -> bool:
    seen = day(shown)
    return seen is not None and seen.isoformat() != asked


def _other_price(shown: object, booking: Booking) -> bool:
    asked, price = booking.total_price, None if isinstance(shown, str) else decimal(shown)
    return asked is not None and price is not None and abs(price) <= _MAX_AMOUNT and abs(price - asked) >= _CENT


def _other_email(shown: object, asked: object) -> bool:
    if not isinstance(shown, str) or not isinstance(asked, str) or not shown.strip() or not asked.strip():
        return False
    return shown.strip().casefold() != asked.strip().casefold()
