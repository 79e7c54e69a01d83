"""The stable interface for authors of adapters, inside this project and outside it. Import nothing else.

A kind of PMS is a class that `Adapter` describes. See docs/guides/write-an-adapter.md for one written from nothing, and
`forwarder_pms_kit.conformance` for what holds it to its word.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

# fmt: off
# isort: off
from forwarder.pms.auth import Authorization, granted, no_token
from forwarder.pms.fields import (
    SPECIFIED, Fate, FieldTable, Headcount, InNotes, LeftOut, Refused, SentAs, country_code, first_and_last,
    headcount,
)
from forwarder.pms.http.client import Request, Send, bearer, credential_header, path_segment
from forwarder.pms.http.outcomes import (
    PRICE_AND_CARD, REFUSALS, Meaning, cancelled_before, gateway_failure, harmless, never_a_no, not_understood,
    outcome_of, outcome_of_message, refusal, says_no, unexpected,
)
from forwarder.pms.http.response import (
    Headers, NoResponse, NotSent, Response, bounded, hold_off_asked, read_object, retry_after,
)
from forwarder.pms.port import CANCELLED_IN_PMS, AccountConnection, Capabilities, Grant, Grants, Limit, Limits
from forwarder.pms.responses import (
    Echo, amount, discreet, finances, identifier, objects, price_part, record_fields, shortened,
)
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking, ReferenceForm, is_reference, names_another
from forwarder.reservation.fast import json_text
from forwarder.reservation.outcome import (
    Absent, Cancelled, CancelOutcome, Confirmed, Deferred, InDoubt, LookupOutcome, Outcome, Rejected,
)
from forwarder.reservation.parsing import day, days_later, decimal, whole_number
from forwarder.reservation.problems import Problem
from forwarder.reservation.request import CardDetails, json_number

__all__ = [
    "CANCELLED_IN_PMS", "PRICE_AND_CARD", "REFUSALS", "SPECIFIED", "Absent", "AccountConnection", "Adapter",
    "AdapterKind", "Authorization", "BatchAdapter", "Booking", "CancelOutcome", "Cancelled", "Capabilities",
    "CardDetails", "Clock", "Confirmed", "Deferred", "Echo", "Fate", "FieldTable", "Grant", "Grants", "Headcount",
    "Headers", "InDoubt", "InNotes", "Kind", "LeftOut", "Limit", "Limits", "LookupOutcome", "Meaning", "NoOptions",
    "NoResponse", "NotSent", "Outcome", "Problem", "ReferenceForm", "Refused", "RehearsingAdapter", "Rejected",
    "Request", "Response", "Send", "SentAs", "StandIn", "amount", "bearer", "bounded", "cancelled_before",
    "country_code", "credential_header", "day", "days_later", "decimal", "discreet", "finances", "first_and_last",
    "gateway_failure", "granted", "harmless", "headcount", "hold_off_asked", "identifier", "is_reference",
    "json_number", "json_text", "names_another", "never_a_no", "no_token", "not_understood", "objects", "outcome_of",
    "outcome_of_message", "path_segment", "price_part", "read_object", "record_fields", "refusal", "retry_after",
    "says_no", "shortened", "unexpected", "whole_number",
]
# isort: on
# fmt: on


class NoOptions(BaseModel):
    """The options of a kind that has none. Kinds with options extend it; docstrings below its fields describe them."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, use_attribute_docstrings=True)


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
    """A response for a dry run. `means`: what is assumed in it, as a sentence; empty if no later request shows it."""

    response: Response
    means: str


@runtime_checkable
class RehearsingAdapter(Adapter, Protocol):
    """An adapter that makes several requests, and supports dry runs: it provides possible answers to those that book nothing."""

    def stand_in(self, request: Request, booking: Booking) -> StandIn | None:
        """A possible answer to `request`; None if a dry run ends with it."""


class AdapterKind(Protocol):
    """How an account's adapter is made: the class of the adapter. Cheap; raises nothing. Limits, capabilities and fields are those
    of an account whose options do not change them."""

    @property
    def limits(self) -> Limits: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def fields(self) -> FieldTable: ...

    @property
    def options(self) -> type[BaseModel]:
        """The model of `connection.options`: `NoOptions`, or a model that extends it. The adapter reads the options with it."""

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """An `AdapterKind` that makes adapters by the account's options. `limits_by`: limits by options; raises nothing."""

    make: Callable[[AccountConnection, Clock], Adapter]
    options: type[BaseModel]
    capabilities: Capabilities
    limits: Limits
    fields: FieldTable
    limits_by: Callable[[Mapping[str, Any]], Limits] | None = field(default=None, kw_only=True)

    def __call__(self, connection: AccountConnection, clock: Clock) -> Adapter:
        return self.make(connection, clock)
