"""A caller's trace context: parsed from headers, stored as one text, and written to outgoing headers. Pure.

https://www.w3.org/TR/trace-context/. The text is the `traceparent`, followed by a space and the `tracestate` if there is one. A
malformed trace is ignored, never refused."""

import re
from collections.abc import Sequence
from typing import Final

from forwarder.reservation.checks.card_numbers import find, is_card_number, may_hold

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

# ff is not a valid version, and all zeros is not a valid trace or span id.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<ids>(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_CURRENT: Final = "00"
_SAMPLED: Final = 1
_LENGTH: Final = 55
_TRACE_ID: Final = slice(3, 35)

_MEMBER: Final = re.compile(r"(?P<key>[a-z0-9][a-z0-9_\-*/@]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_MAX_MEMBERS: Final = 32
_MAX_STATE: Final = 512  # Characters: the minimum that every participant must propagate
_LONG: Final = 128


def read_trace(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """The trace of these headers, in its stored form; None if the `traceparent` is invalid, or an id in it is a card number."""
    given = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if given is None or any(is_card_number(each.lstrip("0")) for each in given["ids"].split("-")):
        return None
    flags = given["flags"]
    if given["version"] != _CURRENT:  # a later version is parsed as far as this one goes, and written as this one
        flags = f"{int(flags, 16) & _SAMPLED:02x}"
    elif given["more"]:
        return None
    trace = f"{_CURRENT}-{given['ids']}-{flags}"
    state = "" if not tracestate else _read_state(tracestate)
    return f"{trace} {state}" if state else trace


def _read_state(tracestate: str) -> str:
    """The members in the form to keep; empty if any is malformed. If several have the same key, keeps the first, the latest.
    Callers write it freely, so one with a card number in it is dropped."""
    first: dict[str, str] = {}
    for member in tracestate.split(","):
        if not (text := member.strip(" \t")):
            continue
        if (found := _MEMBER.fullmatch(text)) is None:
            return ""
        first.setdefault(found["key"], text)
    members = list(first.values())
    if len(members) > _MAX_MEMBERS:
        return ""
    while sum(map(len, members)) + len(members) - 1 > _MAX_STATE:
        long = [place for place, member in enumerate(members) if len(member) > _LONG]
        del members[long[-1] if long else -1]
    state = ",".join(members)
    return "" if may_hold(state) and find(state) else state


def trace_headers(trace: str) -> Sequence[tuple[str, str]]:
    """The headers that send `trace` on."""
    parent, state = (TRACEPARENT, trace[:_LENGTH]), trace[_LENGTH + 1 :]
    return (parent, (TRACESTATE, state)) if state else (parent,)


def trace_id_of(trace: str) -> str:
    """The trace id, with which spans and log lines are found: 32 hexadecimal digits."""
    return trace[_TRACE_ID]
