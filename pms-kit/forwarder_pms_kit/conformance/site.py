"""Where an adapter is tried: a PMS that may be booked in, the account that speaks to it, and the stays that are booked there."""

import secrets
import ssl
from base64 import b32encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

from forwarder.pms.http.connections import trust_of
from forwarder.pms.port import SYSTEM_TLS, ClientTls, Grants, MemoryGrants
from forwarder.reservation.booking import Booking
from forwarder.reservation.request import CardDetails

CARD: Final = CardDetails.model_validate(
    {
        "cardNumber": "4111 1111 1111 1111",
        "cardHolderName": "Maria Gonzalez",
        "expiryMonth": "07",
        "expiryYear": "2031",
        "cvv": "8264",
    }
)
"""A card of the kind that is made for tests; it pays for nothing."""

_GUEST: Final = {
    "name": "Maria Gonzalez",
    "firstName": "Maria",
    "lastName": "Gonzalez",
    "email": "maria@example.com",
    "phone": 34600111222,
    "address": {
        "line1": "Calle Mayor 7",
        "line2": "",
        "postalCode": "28013",
        "city": "Madrid",
        "state": "Madrid",
        "country": "ES",
    },
}
_STAYS_IN_TURN: Final = 60
_STAY: Final = timedelta(days=3)
_STAY_IN_ONE_ROOM: Final = timedelta(days=1)  # a calendar is not open for ever


class Stays:
    """Counts the stays of a site from 1. `left`: those of which is not known whether they were cancelled. `free_at`: when the PMS
    may be asked next, where it limits requests."""

    def __init__(self) -> None:
        self._count = 0
        self.left: list[Booking] = []
        self.free_at = 0.0

    def next(self) -> int:
        self._count += 1
        return self._count

    def restart(self) -> None:
        """Count from 1 again, if all were cancelled."""
        if not self.left:  # whose nights are not free
            self._count = 0

    def tidied(self) -> None:
        """The check is over and its stays are cancelled. The next one books later nights for a while: many PMSs go on listing what
        was cancelled, and a night that every check books makes lists too long to read."""
        if self._count >= _STAYS_IN_TURN:
            self.restart()


@dataclass(frozen=True, slots=True)
class Site:
    """A PMS to try an adapter against: a simulator, a test server of the author's own, a vendor's sandbox. It is booked in.

    `options`: the account's; `{origin}` in a text is replaced by the origin of the base URL as the adapter sees it, so that
    requests to another path go through the faulty proxy too. `fields`, `card`: what every booking has.

    `held`: how many reservations that are not cancelled the PMS has under a reference; where nobody can tell, the adapter's own
    look-up is asked. `held_by`: what `held` is asked instead of the reference, of a PMS that is told none.

    `refusals`: for each code of a refusal (`REFUSALS`), the fields of a booking that the PMS refuses so. `refuses_taken_nights`: it
    has a calendar, and holds by it.

    `property_id`, `room_id`: where to book, each stay after the other from `first_night` on; without, each stay gets a property of
    its own. `seconds_between`: the pause for each request that a push made, where the PMS limits them. `tidy`: cancel in the end
    what was booked.

    `grants`: where access tokens are kept; `lent`: they are another's, and the only ones that may be used. `hidden`: what must
    not be shown, besides the credential. `tls`: what the PMS is believed by, and shown.
    `observed`: what earlier trials at this site found out, so that later ones need not ask again.
    """

    base_url: str
    credential: str = field(default="a-credential-of-the-conformance-kit", repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    card: CardDetails | None = None
    held: Callable[[str], int] | None = None
    held_by: Callable[[Booking], str] | None = None
    property_id: str | int | None = None
    room_id: str | int | None = None
    first_night: date = date(2027, 3, 1)
    refusals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    refuses_taken_nights: bool = True
    seconds_between: float = 0.0
    tidy: bool = False
    grants: Grants = field(default_factory=MemoryGrants, repr=False)
    lent: bool = False
    hidden: tuple[str, ...] = field(default=(), repr=False)
    tls: ClientTls = field(default=SYSTEM_TLS, repr=False)
    stays: Stays = field(default_factory=Stays, repr=False)
    observed: dict[str, Any] = field(default_factory=dict, repr=False)

    def booking(self, *, card: CardDetails | None = None, price: Decimal = Decimal("450.35"), **fields: Any) -> Booking:
        """A booking of nights that are free, under a reference that nobody used; `fields` are added, or replace its own."""
        property_id, arrival, nights = self._free()
        own = {
            "propertyId": property_id,
            "roomId": property_id if self.room_id is None else self.room_id,
            "arrivalDate": arrival.isoformat(),
            "departureDate": (arrival + nights).isoformat(),
            "guest": _GUEST,
            "numberOfGuests": 3,
            "numberOfAdults": 2,
            "numberOfChildren": 1,
            "totalPrice": float(price),
            "currency": "EUR",
            "notes": "Late arrival",
        }
        return Booking(_new_reference(), {**own, **self.fields, **fields}, card or self.card, website_id="site-7")

    def trust(self) -> ssl.SSLContext | None:
        return None if self.tls == SYSTEM_TLS else trust_of(self.tls)

    def _free(self) -> tuple[str | int, date, timedelta]:
        number = self.stays.next()
        if self.property_id is None:
            return 5000 + number, self.first_night, _STAY
        return self.property_id, self.first_night + (number - 1) * _STAY_IN_ONE_ROOM, _STAY_IN_ONE_ROOM

    def options_at(self, origin: str) -> Mapping[str, Any]:
        """The account's options where the PMS seems to be at `origin`."""
        filled: Mapping[str, Any] = _filled(self.options, origin)
        return filled


def _filled(value: Any, origin: str) -> Any:
    match value:
        case Mapping():
            return {name: _filled(part, origin) for name, part in value.items()}
        case str():
            return value.replace("{origin}", origin)
        case _:
            return value


def rival_of(booking: Booking) -> Booking:
    """Another booking of the very same nights."""
    return replace(booking, reference=_new_reference())


def _new_reference() -> str:
    # As the service issues them: 20 bytes in base32.
    return "rsv_" + b32encode(secrets.token_bytes(20)).decode("ascii").lower()
