"""The notifier's port for posting to customers' endpoints, and which headers of a customer's own may be sent with a delivery.

Faults of endpoints and of the network are returned, not raised.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from forwarder.reservation.checks.card_numbers import find
from forwarder.reservation.problems.problem import Fault, pointer_to


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The endpoint's response. `retry_after_seconds`: from its `Retry-After`. `excerpt`: the beginning of the body."""

    status: int
    retry_after_seconds: float | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No response; whether the endpoint has the message is unknown. `failure` is a stable class, `detail` is for people."""

    failure: str
    detail: str = ""


PostResult = EndpointResponse | NoResponse


class Sender(Protocol):
    """Posts to URLs that customers chose."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        """Post once, within the sender's time limit. No retry, no redirect is followed."""
        ...


class BadTarget(ValueError):
    """Not a URL that may be posted to. The message says what would be right; `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


MAX_HEADERS: Final = 10
_MAX_VALUE: Final = 2000
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
_RESERVED: Final = frozenset(
    "accept-encoding connection expect host keep-alive te traceparent tracestate trailer transfer-encoding upgrade "
    "user-agent".split()
)
_RESERVED_PREFIXES: Final = ("content-", "proxy-", "webhook-")


class BadHeaders(ValueError):
    """Headers that cannot be sent. `faults` quote no value."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(f"{fault.pointer.removeprefix('/headers/')} {fault.detail}" for fault in faults))
        self.faults = faults


def require_headers(headers: Mapping[str, str]) -> None:
    """Raises `BadHeaders` unless all of them may be sent."""
    spellings = Counter(name.lower() for name in headers)
    faults = [
        fault
        for number, (name, value) in enumerate(headers.items(), start=1)
        if (fault := _fault_of(name, value, number=number, repeated=spellings[name.lower()] > 1)) is not None
    ]
    if faults:
        raise BadHeaders(faults)


def _fault_of(name: str, value: str, *, number: int, repeated: bool) -> Fault | None:
    at = pointer_to("headers", name)
    if not _NAME.fullmatch(name) or find(name):
        return Fault(at, "invalid_value", "is not a header name: letters, digits and hyphens, such as X-Api-Key")
    if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES):
        return Fault(at, "reserved", "is reserved: the forwarder or its connection sets it")
    if len(value) > _MAX_VALUE:
        return Fault(at, "too_long", f"must have a value of at most {_MAX_VALUE:,} characters")
    if not _VALUE.fullmatch(value):
        return Fault(at, "invalid_value", "must have a value of printable ASCII characters, without spaces at its ends")
    if repeated:
        return Fault(at, "invalid_value", "is given twice")
    if number > MAX_HEADERS:
        return Fault(at, "invalid_value", f"is one too many: at most {MAX_HEADERS} headers")
    return None
