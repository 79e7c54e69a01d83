"""The notifier's port for posting to customers' endpoints.

Faults of endpoints and of the network are returned, not raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


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
