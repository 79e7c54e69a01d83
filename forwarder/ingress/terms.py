"""On which terms a caller submits: its idempotency key, its deadline, its trace. How long it waits is in `runtime.prefer`. Pure."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from forwarder.ingress.request import Call
from forwarder.reservation.problem import Problem
from forwarder.reservation.problems import requests
from forwarder.reservation.submission import LONGEST_DEADLINE_SECONDS

_LONGEST_KEY: Final = 255
# RFC 8941 (3.3.3): printable ASCII in quotes, of which only the quote and the backslash are escaped.
_QUOTED_KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
_BARE_KEY = re.compile(r"[!#-~][ !#-~]*")
_ESCAPED = re.compile(r"\\(.)")
# No leading zero: some programs take 010 for eight.
_DEADLINE = re.compile(r"[1-9][0-9]{0,17}")
# W3C Trace Context, version 00; ff and identifiers of zeros alone are invalid.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

INVALID_KEY: Final = requests.INVALID_KEY.problem(
    f'The Idempotency-Key is one string in double quotes, such as "order-42", of 1 to {_LONGEST_KEY} printable ASCII '
    "characters; it may also come without the quotes.",
)
INVALID_DEADLINE: Final = requests.INVALID_DEADLINE.problem(
    "The Forward-Deadline is one whole number of seconds in plain digits, such as 300, from 1 to "
    f"{LONGEST_DEADLINE_SECONDS}, and comes once.",
)


class Terms(NamedTuple):
    """What the headers of a submission ask for; None is what they leave open. `deadline_seconds` count from its acceptance."""

    idempotency_key: str | None
    deadline_seconds: int | None
    traceparent: str | None


_ASKING: Final = frozenset({b"idempotency-key", b"forward-deadline", b"traceparent"})
_OPEN: Final = Terms(None, None, None)


def read_terms(call: Call) -> Terms | Problem:
    """The terms of `call`."""
    if _ASKING.isdisjoint(call.fields):
        return _OPEN
    key = _idempotency_key(call)
    if isinstance(key, Problem):
        return key
    deadline = call.headers.get("forward-deadline")
    seconds = None if deadline is None else read_deadline(deadline)
    if isinstance(seconds, Problem):
        return seconds
    return Terms(key, seconds, read_traceparent(call.headers))


def read_idempotency_key(header: str) -> str | Problem:
    """The key itself: `"order-42"` and `order-42` are the same."""
    text = header.strip()
    if quoted := _QUOTED_KEY.fullmatch(text):
        key = _ESCAPED.sub(r"\1", quoted[1])
    elif _BARE_KEY.fullmatch(text):
        key = text
    else:
        return INVALID_KEY
    return key if 1 <= len(key) <= _LONGEST_KEY else INVALID_KEY


def read_deadline(header: str) -> int | Problem:
    """For how many seconds a submission is worth forwarding. Two lines come joined by a comma, and are refused with it."""
    text = header.strip()
    if not _DEADLINE.fullmatch(text) or int(text) > LONGEST_DEADLINE_SECONDS:
        return INVALID_DEADLINE
    return int(text)


def read_traceparent(headers: Mapping[str, str]) -> str | None:
    """The caller's trace, where it is one."""
    header = headers.get("traceparent")
    return header if header is not None and _TRACEPARENT.fullmatch(header) else None


def _idempotency_key(call: Call) -> str | Problem | None:
    header = call.headers.get("idempotency-key")
    if header is None:
        return None
    # Joined by a comma, two keys would look like one.
    return read_idempotency_key(header) if call.times(b"idempotency-key") == 1 else INVALID_KEY
