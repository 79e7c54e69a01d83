"""What one kind of PMS has to bring along, and how the rest of the house sees it: as a `Pms` that raises nothing.

Private to the seam. A new kind of PMS is one module with an `Adapter`, and its line in `kinds`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from forwarder.pms.http.client import PmsClient, Send, always
from forwarder.pms.http.failure import NoResponse, NotSent, harmless, outcome_of
from forwarder.pms.port import AccountConnection, Capabilities, Limits, Pace
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Cancellation, Lookup, Outcome


class NoOptions(BaseModel):
    """Of a kind whose accounts have no options. Kinds that have some extend it, with their fields in camel case."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=False, validate_by_alias=True
    )


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

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> Cancellation:
        """Cancel. `Cancelled` as well where the PMS has none of that id, or has cancelled it before."""
        ...


@runtime_checkable
class BatchAdapter(Adapter, Protocol):
    """An adapter whose PMS takes several at once: `capabilities.max_per_create` is more than 1."""

    async def create_many(self, bookings: Sequence[Booking], send: Send) -> Sequence[Outcome]:
        """Ask once for all. What it lets through of `send`'s errors speaks of every one of them."""
        ...


class AdapterKind(Protocol):
    """How an account's adapter is made: the class of the adapter. Cheap; raises nothing."""

    @property
    def limits(self) -> Limits:
        """What this kind of PMS publishes that one account may ask of it."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this kind of PMS can do, where an account's options do not say otherwise."""
        ...

    @property
    def options(self) -> type[BaseModel]:
        """What `connection.options` must be: a `NoOptions`, or a model that extends it. The adapter reads them by it."""
        ...

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter: ...


class ConnectedPms:
    """A `Pms`: an adapter and the wire, whose requests and answers go by `pace`."""

    def __init__(self, adapter: Adapter, wire: PmsClient, pace: Pace, held: Callable[[], bool] = always) -> None:
        self._adapter = adapter
        self._wire = wire
        self._pace = pace
        self._held = held

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    def while_held(self, held: Callable[[], bool]) -> "ConnectedPms":
        return ConnectedPms(self._adapter, self._wire, self._pace, held)

    async def create(self, booking: Booking) -> Outcome:
        try:
            return await self._adapter.create(booking, self._send())
        except (NotSent, NoResponse) as failure:
            return outcome_of(failure)

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        if not isinstance(self._adapter, BatchAdapter):
            return [await self.create(booking) for booking in bookings]
        try:
            return await self._adapter.create_many(bookings, self._send())
        except (NotSent, NoResponse) as failure:
            return [outcome_of(failure)] * len(bookings)

    async def find(self, booking: Booking) -> Lookup:
        try:
            return await self._adapter.find(booking, self._send())
        except (NotSent, NoResponse) as failure:
            return harmless(outcome_of(failure))

    async def cancel(self, booking: Booking, pms_reservation_id: str) -> Cancellation:
        try:
            return await self._adapter.cancel(booking, pms_reservation_id, self._send())
        except (NotSent, NoResponse) as failure:
            return harmless(outcome_of(failure))

    def _send(self) -> Send:
        return self._wire.push(self._pace, self._held)
