"""What the notifier asks of the way to customers' endpoints.

Nothing of this port raises for what an endpoint, or the way to it, may do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """The endpoint answered. `wait_seconds`: what it asked for by `Retry-After`. `excerpt`: how its answer begins, shortened."""

    status: int
    wait_seconds: float | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class NoResponse:
    """No answer came; whether the endpoint has the message is not known. `failure` is the class of what went wrong."""

    failure: str
    detail: str = ""


PostResult = EndpointResponse | NoResponse


class Sender(Protocol):
    """Posts to addresses that customers chose."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> PostResult:
        """Post once: no second try, no redirect followed, all of it within the sender's time limit."""
        ...


class BadTarget(ValueError):
    """Not an address that may be posted to. The message says what would be right; `code` is its stable class."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Targets(Protocol):
    """Which addresses may be posted to."""

    async def check(self, url: str) -> None:
        """Raise `BadTarget` for what is wrong with the address, or with where its host leads to now. A host whose name is not known
        now is let through: where a name leads to is checked again with every connection."""
        ...
