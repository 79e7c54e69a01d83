"""Tracing: a caller's trace context, and spans as a port for the seams that work passes (HTTP, the log, PMSs, webhooks). Pure.

The context (https://www.w3.org/TR/trace-context/) is parsed from headers, stored as one text, and written to outgoing headers. The
text is the `traceparent`, followed by a space and the `tracestate` if there is one. A malformed trace is ignored, never refused.

With tracing on, `assembly` wraps each seam: work that arrives with a trace continues in a child span. The stages keep and forward
the trace that they are given, and know nothing of spans; with tracing off, nothing is wrapped."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Final, Protocol

from forwarder.reservation.checks.card_numbers import find, is_card_number, may_hold

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

# ff is not a valid version, and all zeros is not a valid trace or span id.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<ids>(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_LENGTH: Final = 55
_MEMBER: Final = re.compile(r"(?P<key>[a-z0-9][a-z0-9_\-*/@]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_MAX_STATE: Final = 512  # characters: the minimum that every participant must propagate
_LONG: Final = 128


def read_trace(traceparent: str | None, tracestate: str | None = None) -> str | None:
    """The trace of these headers, in its stored form; None if the `traceparent` is invalid, or an id in it is a card number."""
    given = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if given is None or any(is_card_number(each.lstrip("0")) for each in given["ids"].split("-")):
        return None
    flags = given["flags"]
    if given["version"] != "00":  # a later version is parsed as far as this one goes, and written as this one
        flags = f"{int(flags, 16) & 1:02x}"  # whether it is sampled
    elif given["more"]:
        return None
    trace, state = f"00-{given['ids']}-{flags}", _read_state(tracestate or "")
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
    if len(members) > 32:  # noqa: PLR2004 - as the standard says
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
    return trace[3:35]


ERROR: Final = "error.type"
OUR_ID: Final = re.compile(r"rsv_[a-z2-7]{32}(\.[a-z0-9.]{1,32})?")
"""The id of a submission, or of a message about one. Checked on messages from a topic, where others may write anything."""
Attributes = Mapping[str, str | int]
"""Named by OpenTelemetry's semantic conventions, or `forwarder.…`. Only our identifiers, numbers and codes: never text from a
caller or a PMS, nor any part of an address beyond its host."""
Kind = Enum("Kind", "SERVER CLIENT PRODUCER CONSUMER INTERNAL")
"""The role of a span between its neighbours, as in OpenTelemetry."""


class Span(Protocol):
    """A span, from its start to its end. No method raises or blocks. `fail` gets a code that says why."""

    @property
    def trace(self) -> str:
        """The trace context to store and forward, so that later work becomes part of this span (`context`)."""

    def rename(self, name: str) -> None: ...
    def note(self, attributes: Attributes) -> None: ...
    def fail(self, error_type: str) -> None: ...
    def end(self) -> None: ...


class Tracer(Protocol):
    """Starts spans. Spans are sampled; an unsampled one is cheap, and propagates that decision."""

    def start(
        self, name: str, kind: Kind, parent: str | None, attributes: Attributes, *, links: Sequence[str] = ()
    ) -> Span:
        """Starts a span in the trace `parent`, or in a new trace. `links`: related traces."""


@contextmanager
def ending(*spans: Span) -> Iterator[None]:
    """Ends `spans` after the block. An exception that leaves the block marks them as failed, with the name of its type."""
    try:
        yield
    except BaseException as error:
        for span in spans:
            span.fail(type(error).__name__)
        raise
    finally:
        for span in spans:
            span.end()
