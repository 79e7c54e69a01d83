"""The interface of an adapter for one kind of PMS, and of the factory that makes one for an account."""

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
    """The options of a kind whose accounts have none. Kinds with options extend it; their fields are in camel case, and
    described by the docstrings below them."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_by_name=False,
        validate_by_alias=True,
    )


class Adapter(Protocol):
    """One kind of PMS, for one account. Interprets responses; `send` raises when there is no response."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def fields(self) -> FieldTable:
        """How each field of a request is sent. Holds for every request that `create` makes."""

    async def create(self, booking: Booking, send: Send) -> Outcome:
        """Ask once. An error of `send` that it does not catch is taken to concern the reservation itself."""

    async def find(self, booking: Booking, send: Send) -> LookupOutcome:
        """Look up `booking.reference`. `Absent` only if the PMS certainly showed every reservation that could carry it."""

    async def cancel(self, booking: Booking, pms_reservation_id: str, send: Send) -> CancelOutcome:
        """Cancel. `Cancelled` also if the PMS has no reservation of that id, or has cancelled it before."""


@runtime_checkable
class BatchAdapter(Adapter, Protocol):
    """An adapter whose PMS takes several at once: `capabilities.max_per_create` is more than 1."""

    async def create_many(self, bookings: Sequence[Booking], send: Send) -> Sequence[Outcome]:
        """Ask once for all. An error of `send` that it does not catch is taken to concern every one of them."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A response used in place of the PMS's in a dry run. `means`: what in it is only assumed, as one sentence;
    empty if no later request shows it."""

    response: Response
    means: str


@runtime_checkable
class RehearsingAdapter(Adapter, Protocol):
    """An adapter that makes several requests, and supports dry runs: it provides possible answers to those that book nothing."""

    def stand_in(self, request: Request, booking: Booking) -> StandIn | None:
        """A possible answer to `request`; None if a dry run ends with it."""


class AdapterKind(Protocol):
    """How an account's adapter is made: the class of the adapter. Cheap; raises nothing."""

    @property
    def limits(self) -> Limits:
        """The rate limits that this kind of PMS publishes for one account."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this kind of PMS, unless an account's options change them."""

    @property
    def fields(self) -> FieldTable:
        """How each field of a request is sent, unless an account's options change it."""

    @property
    def options(self) -> type[BaseModel]:
        """The model of `connection.options`: `NoOptions`, or a model that extends it. The adapter reads the options with it."""

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """An `AdapterKind` whose capabilities depend on the account's options. `capabilities`, `limits` and `fields` are those of an
    account without options; an adapter may have others. `limits_by`: the limits of an account with these options, if they determine
    them; raises nothing."""

    make: Callable[[AccountConnection, Clock], Adapter]
    options: type[BaseModel]
    capabilities: Capabilities
    limits: Limits
    fields: FieldTable
    limits_by: Callable[[Mapping[str, Any]], Limits] | None = field(default=None, kw_only=True)

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter:
        return self.make(connection, clock)


def limits_of(kind: AdapterKind, options: Mapping[str, Any]) -> Limits:
    """The published rate limits of an account with these options."""
    if isinstance(kind, Kind) and kind.limits_by is not None:
        return kind.limits_by(options)
    return kind.limits
