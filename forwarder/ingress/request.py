"""One HTTP call as the ingress sees it: its headers, its body up to a limit, and whether the caller is still there."""

import functools
import re
from collections.abc import Awaitable, Mapping

from starlette.types import Receive, Scope

from forwarder.http.bodies import read_body_up_to
from forwarder.http.exchange import body_at_hand
from forwarder.http.responses import header_fields

_HOST = re.compile(r"[A-Za-z0-9._\-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")


class Call:
    """`fields` are its headers by lower-case name, as they came; `started` is when it came, on the clock's monotonic scale."""

    __slots__ = ("_headers", "fields", "receive", "scope", "started")

    def __init__(self, scope: Scope, receive: Receive, started: float) -> None:
        self.scope = scope
        self.receive = receive
        self.started = started
        self.fields = header_fields(scope)
        self._headers: Mapping[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers as text, made when they are first asked for: what every call is asked is asked of `fields`."""
        if self._headers is None:
            self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.fields.items()}
        return self._headers

    @property
    def origin(self) -> str:
        """Scheme and host as the caller wrote them (`http://host:port`), empty where the host is missing or no host."""
        return _origin(self.scope["scheme"], self.fields.get(b"host", b""))

    def times(self, header: bytes) -> int:
        """On how many lines the header came."""
        return sum(name == header for name, _ in self.scope["headers"])

    def body_at_hand(self) -> bytes | None:
        """The whole body where it came together with the head; None where it is to be waited for."""
        return body_at_hand(self.receive)

    def body(self, at_most: int) -> Awaitable[bytes | None]:
        """The whole body, or None as soon as it is seen to be longer than `at_most` bytes. Raises `ClientDisconnect`."""
        return read_body_up_to(at_most, self.headers, self.receive)

    async def gone(self) -> None:
        """Return when the caller has left. To be awaited after the body."""
        while (await self.receive())["type"] != "http.disconnect":
            pass


@functools.lru_cache(maxsize=256)
def _origin(scheme: str, host: bytes) -> str:
    text = host.decode("latin-1")
    return f"{scheme}://{text}" if _HOST.fullmatch(text) else ""
