"""The stable interface for authors of adapters, inside this project and outside it. Import nothing else.

A kind of PMS is a class that `Adapter` describes. See docs/guides/write-an-adapter.md for one written from nothing, and
`forwarder_pms_kit.conformance` for what holds it to its word.
"""

from forwarder.pms.adapter import Adapter, AdapterKind, BatchAdapter, Kind, NoOptions, RehearsingAdapter, StandIn
from forwarder.pms.auth import Authorization, granted, no_token
from forwarder.pms.fields import (
    SPECIFIED,
    Fate,
    FieldTable,
    Headcount,
    InNotes,
    LeftOut,
    Refused,
    SentAs,
    country_code,
    first_and_last,
    headcount,
)
from forwarder.pms.http.client import Request, Send, bearer, credential_header, path_segment
from forwarder.pms.http.outcomes import (
    PRICE_AND_CARD,
    REFUSALS,
    Meaning,
    cancelled_before,
    gateway_failure,
    harmless,
    never_a_no,
    not_understood,
    outcome_of,
    outcome_of_message,
    refusal,
    says_no,
    unexpected,
)
from forwarder.pms.http.response import (
    Headers,
    NoResponse,
    NotSent,
    Response,
    bounded,
    hold_off_asked,
    read_object,
    retry_after,
)
from forwarder.pms.port import CANCELLED_IN_PMS, AccountConnection, Capabilities, Grant, Grants, Limit, Limits
from forwarder.pms.responses import (
    Echo,
    amount,
    discreet,
    finances,
    identifier,
    objects,
    price_part,
    record_fields,
    shortened,
)
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking, ReferenceForm, is_reference, names_another
from forwarder.reservation.fast import json_text
from forwarder.reservation.outcome import (
    Absent,
    Cancelled,
    CancelOutcome,
    Confirmed,
    Deferred,
    InDoubt,
    LookupOutcome,
    Outcome,
    Rejected,
)
from forwarder.reservation.parsing import day, days_later, decimal, whole_number
from forwarder.reservation.problems.problem import Problem
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
]  # fmt: skip
