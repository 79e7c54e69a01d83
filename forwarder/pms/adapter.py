"""What one kind of PMS has to bring along: an `Adapter`, and how one is made for an account."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from forwarder.pms.fields import FieldTable
from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.response import Response
from forwarder.pms.port import AccountConnection, Capabilities, Limits
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import CancelOutcome, LookupOutcome, Outcome


class NoOptions(BaseModel):
    """Of a kind whose accounts have no options. Kinds that have some extend it, with their fields in camel case."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, validate_by_name=False, validate_by_alias=True
    )


class Adapter(Protocol):
    """One kind of PMS, spoken to as one account. Says what responses mean; `send` says what no response means, by raising."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def fields(self) -> FieldTable:
        """What becomes of each field of a request. True of every request that `create` makes."""
        ...

    async def create(self, booking: Booking, send: Send) -> Outcome:
        """Ask once. What it lets through of `send`'s errors speaks of the reservation itself."""
        ...

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        """Look up `booking.reference`. `Absent` only where the PMS surely showed everything that could carry it."""
        ...

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        """Cancel. `Cancelled` as well where the PMS has none of that id, or has cancelled it before."""
        ...


@runtime_checkable
class BatchAdapter(Adapter, Protocol):
    """An adapter whose PMS takes several at once: `capabilities.max_per_create` is more than 1."""

    async def create_many(self, bookings: Sequence[Booking], send: Send) -> Sequence[Outcome]:
        """Ask once for all. What it lets through of `send`'s errors speaks of every one of them."""
        ...


@dataclass(frozen=True, slots=True)
class StandIn:
    """A response that is taken for the PMS's own in a dry run. `means`: what in it is only assumed, as one sentence;
    empty where nothing that follows shows it."""

    response: Response
    means: str


@runtime_checkable
class RehearsingAdapter(Adapter, Protocol):
    """An adapter that makes several requests, and can be shown to: it says what might be answered to those that book nothing."""

    def stand_in(self, request: Request, booking: Booking) -> StandIn | None:
        """What might be answered to `request`; None where a dry run ends with it."""
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
    def fields(self) -> FieldTable:
        """What becomes of each field of a request, where an account's options do not say otherwise."""
        ...

    @property
    def options(self) -> type[BaseModel]:
        """What `connection.options` must be: a `NoOptions`, or a model that extends it. The adapter reads them by it."""
        ...

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """An `AdapterKind` that is more than the class of its adapter: what an account can rely on follows from its options.

    `capabilities`, `limits` and `fields` are those of an account without options; an adapter may have others. `limits_by`: those
    of an account with these options, where they say; raises nothing."""

    make: Callable[[AccountConnection, Clock], Adapter]
    options: type[BaseModel]
    capabilities: Capabilities
    limits: Limits
    fields: FieldTable
    limits_by: Callable[[Mapping[str, Any]], Limits] | None = field(default=None, kw_only=True)

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter:
        return self.make(connection, clock)


def limits_of(kind: AdapterKind, options: Mapping[str, Any]) -> Limits:
    """What is published that an account with these options may ask of its PMS."""
    if isinstance(kind, Kind) and kind.limits_by is not None:
        return kind.limits_by(options)
    return kind.limits
