"""Bounds one process's HTTP load: concurrent requests, bytes of their bodies, and bytes of responses that clients are reading.

`Shares` divides each bound: among workspaces once the caller is authenticated, before that among client addresses. A request over
its share is refused with `overloaded`, so memory stays bounded and one caller's requests are never refused because of another's.
Health routes take no place. `connection_limits` bounds connections, heads and idle time.
"""

from collections.abc import Hashable
from typing import Final

from starlette.types import Scope

from forwarder.process.addresses import client_of
from forwarder.process.shares import Shares

PLACE: Final = "forwarder.place"
"""The scope key of a request's `Place`."""

_STRANGERS_SHARE: Final = 4


class Admission:
    """The budgets of one process. `max_requests`: in flight; a quarter as many with callers not authenticated yet.
    `max_body_bytes`: received and not safe yet, of all bodies. `max_response_bytes`: of responses over 64 KiB whose clients are
    still reading."""

    def __init__(
        self,
        *,
        max_requests: int = 5_000,
        max_body_bytes: int = 48 * 1024 * 1024,
        max_response_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.requests = Shares(max_requests)
        self.strangers = Shares(max(max_requests // _STRANGERS_SHARE, 1))
        self.bodies = Shares(max_body_bytes)
        self.responses = Shares(max_response_bytes)
        self.strangers_responses = Shares(max_response_bytes // _STRANGERS_SHARE)

    def enter(self, workspace: str) -> "Place | None":
        """A place for a request of this workspace; None where it has all that it may have."""
        return Place(self, workspace, self.requests, self.responses) if self.requests.take(workspace) else None

    def enter_unknown(self, address: str) -> "Place | None":
        """A place for a request from this address, until its caller is known: see `Place.claim`."""
        party = client_of(address)
        return Place(self, party, self.strangers, self.strangers_responses) if self.strangers.take(party) else None

    def uncounted(self, address: str) -> "Place":
        """A place for a request that is always answered. Only its response is counted."""
        return Place(self, client_of(address), None, self.strangers_responses)


class Place:
    """One request's share of the budgets. `counted`: the request budget that it counts against."""

    __slots__ = ("_admission", "_body_bytes", "_counted", "_party", "_response_bytes", "_responses")

    def __init__(self, admission: Admission, party: Hashable, counted: Shares | None, responses: Shares) -> None:
        self._admission = admission
        self._party = party
        self._counted = counted
        self._responses = responses
        self._body_bytes = 0
        self._response_bytes = 0

    def claim(self, workspace: str) -> bool:
        """Counts the request for this workspace from now on; False if the workspace's share is used up, and `leave` is still
        due."""
        if not self._admission.requests.take(workspace):
            return False
        self.leave()
        self._party, self._counted, self._responses = workspace, self._admission.requests, self._admission.responses
        return True

    def may_receive(self, size: int) -> bool:
        """Whether a body of that size would fit now. Reserves nothing."""
        return self._admission.bodies.fits(self._party, size)

    def received(self, size: int) -> bool:
        """Counts that many more bytes of its body; False if they exceed the share."""
        if not self._admission.bodies.take(self._party, size):
            return False
        self._body_bytes += size
        return True

    def leave(self) -> None:
        """Releases its place and the bytes of its body, once: the content is safe, or was refused. Waits for outcomes, and
        responses that clients are reading, are counted elsewhere."""
        if self._body_bytes:
            self._admission.bodies.give_back(self._party, self._body_bytes)
            self._body_bytes = 0
        if self._counted is not None:
            self._counted.give_back(self._party)
            self._counted = None

    def hold_response(self, size: int, *, refusable: bool) -> bool:
        """Hold so many bytes of its response, instead of those held for it before; False where that is too much. The response to a
        request that took effect is not `refusable`: it overdraws."""
        more = size - self._response_bytes
        if more < 0:
            self._responses.give_back(self._party, -more)
        elif more and not self._responses.take(self._party, more):
            if refusable:
                return False
            self._responses.overdraw(self._party, more)
        self._response_bytes = size
        return True

    def end(self) -> None:
        """Releases everything: the client has read its response, or has left."""
        self.leave()
        if self._response_bytes:
            self._responses.give_back(self._party, self._response_bytes)
            self._response_bytes = 0


def place_of(scope: Scope) -> Place | None:
    """The place that a request has; None outside of an application."""
    place: Place | None = scope.get(PLACE)
    return place
