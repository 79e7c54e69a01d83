"""What one kind of PMS has to bring along, and how the rest of the house sees it: as a `Pms` that raises nothing.

Private to the seam. A new kind of PMS is one module with an `Adapter`, and its line in `directory`.
"""

from dataclasses import dataclass
from typing import Protocol

from forwarder.pms.failure import NoAnswer, NotSent, harmless, outcome_of
from forwarder.pms.port import Capabilities, Connection, Limits, Pace
from forwarder.pms.wire import Send, Wire
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Deferred, Lookup, Outcome, Rejected
from forwarder.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The PMS no longer has the reservation."""


Cancellation = Cancelled | Rejected | Deferred
"""What a cancellation came to. It may be asked for any number of times, so that a doubt about one is only a delay."""


class Adapter(Protocol):
    """One kind of PMS, spoken to as one account. Says what answers mean; `send` says what no answer means, by raising."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def create(self, booking: Booking, send: Send) -> Outcome:
        """Ask once. What it lets through of `send`'s errors speaks of the reservation itself."""
        ...

    async def find(self, booking: Booking, send: Send) -> Lookup:
        """Look up `booking.reference`. `Absent` only where the PMS surely showed everything that could carry it."""
        ...


class AdapterKind(Protocol):
    """How an account's adapter is made: the class of the adapter. Cheap; raises nothing."""

    @property
    def limits(self) -> Limits:
        """What this kind of PMS publishes that one account may ask of it."""
        ...

    def __call__(self, connection: Connection, clock: Clock) -> Adapter: ...


class ConnectedPms:
    """A `Pms`: an adapter and the wire, whose requests and answers go by `pace`."""

    def __init__(self, adapter: Adapter, wire: Wire, pace: Pace) -> None:
        self._adapter = adapter
        self._wire = wire
        self._pace = pace

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    async def create(self, booking: Booking) -> Outcome:
        try:
            return await self._adapter.create(booking, self._wire.push(self._pace))
        except (NotSent, NoAnswer) as failure:
            return outcome_of(failure)

    async def find(self, booking: Booking) -> Lookup:
        try:
            return await self._adapter.find(booking, self._wire.push(self._pace))
        except (NotSent, NoAnswer) as failure:
            return harmless(outcome_of(failure))
