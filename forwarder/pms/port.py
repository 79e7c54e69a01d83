"""What the worker asks of a PMS, and what a PMS says of itself. No HTTP here: outcomes are already decided.

Nothing of this port raises for what a PMS, or the way to it, may do; `UnknownKind` is a mistake in an account's settings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Lookup, Outcome


class UnknownKind(LookupError):
    """No adapter is registered for that kind of PMS. The message names the kinds there are."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of PMS can be relied on for; it decides how an ambiguous push is resolved.

    `idempotent_create`: creating twice with one key makes one reservation, so that a push may be sent again.
    `find_by_reference`: a reservation can be looked up by our reference, so that a push can be checked.
    `cancel`: a reservation can be cancelled.
    """

    idempotent_create: bool
    find_by_reference: bool
    cancel: bool


@dataclass(frozen=True, slots=True)
class Connection:
    """Where one integration account's PMS is and how it lets us in. The credential is in the clear: in memory only."""

    account_id: str
    kind: str
    base_url: str
    credential: str = field(repr=False)


class Pms(Protocol):
    """One integration account's PMS."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def create(self, booking: Booking) -> Outcome:
        """Ask the PMS, once, to make `booking`. Returns within the push time-out; cancelling it leaves it in doubt."""
        ...

    async def find(self, booking: Booking) -> Lookup:
        """Look for a reservation that carries `booking.reference`. Only where `find_by_reference`."""
        ...


class PmsDirectory(Protocol):
    """The kinds of PMS that this process can talk to."""

    def kinds(self) -> Sequence[str]:
        """Every registered kind, sorted."""
        ...

    def connect(self, connection: Connection) -> Pms:
        """The PMS behind `connection`; cheap, opens nothing by itself. Raises `UnknownKind`."""
        ...
