"""One HTTP call as the ingress sees it: its headers, its body up to a limit, and whether the caller is still there."""

import re
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from starlette.types import Receive, Scope

from forwarder.runtime.bodies import read_at_most
from forwarder.runtime.http import header_map
from forwarder.runtime.http_exchange import body_at_hand

_HOST = re.compile(r"[A-Za-z0-9._\-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")


class Call(NamedTuple):
    """`headers` by lower-case name; `started` is when the call came, on the clock's monotonic scale."""

    scope: Scope
    receive: Receive
    headers: Mapping[str, str]
    started: float

    @classmethod
    def of(cls, scope: Scope, receive: Receive, started: float) -> "Call":
        return cls(scope, receive, header_map(scope), started)

    @property
    def origin(self) -> str:
        """Scheme and host as the caller wrote them (`http://host:port`), empty where the host is missing or no host."""
        host = self.headers.get("host", "")
        return f"{self.scope['scheme']}://{host}" if _HOST.fullmatch(host) else ""

    def times(self, header: bytes) -> int:
        """On how many lines the header came."""
        return sum(name == header for name, _ in self.scope["headers"])

    def body_at_hand(self) -> bytes | None:
        """The whole body where it came together with the head; None where it is to be waited for."""
        return body_at_hand(self.receive)

    def body(self, at_most: int) -> Awaitable[bytes | None]:
        """The whole body, or None as soon as it is seen to be longer than `at_most` bytes. Raises `ClientDisconnect`."""
        return read_at_most(at_most, self.headers, self.receive)

    async def gone(self) -> None:
        """Return when the caller has left. To be awaited after the body."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
