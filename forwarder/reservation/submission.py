"""One accepted submission, as it travels from the ingress to the worker and as it is stored."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from forwarder.reservation.identity import key_of
from forwarder.reservation.request import Operation, SealedCard
from forwarder.reservation.value import value

MAX_DEADLINE_SECONDS: Final = 7 * 24 * 60 * 60
"""The longest that a caller may ask for. The account's own deadline applies if it is shorter."""


@value(frozen=True, slots=True)
class Submission:
    """A reservation request that was accepted, and for whom.

    `reservation` holds the request's own fields in the forms in which they came; of a card it shows the masked number alone,
    the rest is in `card`, sealed. `fingerprint` tells one payload from another without revealing either.
    `deadline_seconds`: for how long after `accepted_at` its caller wants it forwarded, 1 to `MAX_DEADLINE_SECONDS`; None
    leaves it to the account. No part of the fingerprint: it says how long to try, not what for.
    """

    request_id: str
    workspace_id: str
    account_id: str
    operation: Operation
    accepted_at: datetime
    reservation: Mapping[str, Any]
    fingerprint: str
    card: SealedCard | None = None
    traceparent: str | None = None
    deadline_seconds: int | None = None

    @property
    def property_id(self) -> str:
        return str(self.reservation["propertyId"])

    @property
    def room_id(self) -> str:
        """The room's identifier; the property's if the request names no room."""
        room = self.reservation.get("roomId")
        return self.property_id if room is None else str(room)

    @property
    def arrival(self) -> date:
        return date.fromisoformat(self.reservation["arrivalDate"])

    @property
    def departure(self) -> date:
        return date.fromisoformat(self.reservation["departureDate"])

    @property
    def key(self) -> str:
        """Submissions with one key keep their order: those of one property in one account."""
        return key_of(self.account_id, self.property_id)
