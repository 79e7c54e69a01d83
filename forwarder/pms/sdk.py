"""What the author of an adapter imports: all of it, and nothing else of this project is for them. Kept stable.

A kind of PMS is a class that `Adapter` describes. See docs/guides/write-an-adapter.md for one written from nothing, and
`forwarder.pms.conformance` for what holds it to its word.
"""

from forwarder.pms.adapter import Adapter, AdapterKind, BatchAdapter, NoOptions
from forwarder.pms.auth.authorization import Authorization
from forwarder.pms.auth.grants import Grant, Grants
from forwarder.pms.http.client import Headers, Send, bearer, credential_header, path_segment, request_to
from forwarder.pms.http.failure import NoResponse, NotSent, harmless, not_understood, retry_after, unexpected
from forwarder.pms.kind import Kind
from forwarder.pms.kinds.generic.adapter import REFUSALS, refusal
from forwarder.pms.port import CANCELLED_IN_PMS, AccountConnection, Capabilities, Limit, Limits
from forwarder.pms.record_fields import amount, finances, identifier, read_object, record_fields
from forwarder.pms.redaction import discreet, shortened, without_card
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import (
    Absent,
    Cancellation,
    Cancelled,
    Confirmed,
    Deferred,
    InDoubt,
    Lookup,
    Outcome,
    Rejected,
)
from forwarder.reservation.problem import Problem
from forwarder.reservation.request import CardDetails, json_number

__all__ = [
    "CANCELLED_IN_PMS",
    "REFUSALS",
    "Absent",
    "AccountConnection",
    "Adapter",
    "AdapterKind",
    "Authorization",
    "BatchAdapter",
    "Booking",
    "Cancellation",
    "Cancelled",
    "Capabilities",
    "CardDetails",
    "Clock",
    "Confirmed",
    "Deferred",
    "Grant",
    "Grants",
    "Headers",
    "InDoubt",
    "Kind",
    "Limit",
    "Limits",
    "Lookup",
    "NoOptions",
    "NoResponse",
    "NotSent",
    "Outcome",
    "Problem",
    "Rejected",
    "Send",
    "amount",
    "bearer",
    "credential_header",
    "discreet",
    "finances",
    "harmless",
    "identifier",
    "json_number",
    "not_understood",
    "path_segment",
    "read_object",
    "record_fields",
    "refusal",
    "request_to",
    "retry_after",
    "shortened",
    "unexpected",
    "without_card",
]
