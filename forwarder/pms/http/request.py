"""A request as the bytes that go over a connection, and where they go.

Whatever HTTP cannot carry is refused with `httpx.UnsupportedProtocol`, before anything is connected to. What the refusal says is
nothing of the address or the headers: they may hold a password.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import httpx

_Headers = Sequence[tuple[bytes, bytes]]

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(rb"[0-9A-Za-z._~-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""A name or an address; one of IPv6 comes without its brackets."""
_FRAMING: Final = {b"content-length", b"transfer-encoding"}
"""What says how long the body is. It is sent whole, so that its length alone does."""
_ANNOUNCED_IF_EMPTY: Final = {"POST", "PUT", "PATCH"}


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where connections lead to; those to the same one stand in for each other. `headers`: the lines that a request to it has
    unless it brings its own, by their names in lower case."""

    host: str
    port: int
    tls: bool
    headers: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Destination:
    """What an address says of a request to it: where it goes, what it asks for there, and the line that its user information
    makes, if any."""

    url: httpx.URL
    origin: Origin
    target: bytes
    authorization: bytes | None


def destination_of(url: httpx.URL) -> Destination:
    """Raises `httpx.UnsupportedProtocol` where HTTP leads nowhere."""
    origin = _origin(url.scheme, url.raw_host, url.port)
    return Destination(url, origin, url.raw_path, _basic(url.userinfo) if url.userinfo else None)


@lru_cache(maxsize=4096)
def _origin(scheme: str, host: bytes, port: int | None) -> Origin:
    """The one object for that scheme, host and port."""
    if scheme not in _PORTS or _HOST.fullmatch(host) is None:
        raise httpx.UnsupportedProtocol("not an address that HTTP can be spoken to")
    name = b"[%b]" % host if b":" in host else host
    if port is not None:
        name += b":%d" % port
    lines = {
        b"host": b"Host: " + name,
        b"user-agent": b"User-Agent: reservation-forwarder",
        b"accept-encoding": b"Accept-Encoding: identity",
    }
    return Origin(host.decode("ascii"), port or _PORTS[scheme], scheme == "https", MappingProxyType(lines))


class PlainRequest(httpx.Request):
    """A request as its parts. What httpx makes of them (`headers`, `stream`) is made for whoever asks for it, and then counts: the
    transport of production does not, which halves what a request costs. `known`: the destination, where it was looked up before.
    """

    def __init__(
        self, method: str, url: httpx.URL, headers: _Headers, content: bytes, known: Destination | None = None
    ) -> None:
        self.method = method.upper()
        self.url = url
        self.extensions = {}
        self._parts = headers, content, known

    def __getattr__(self, name: str) -> Any:
        if name not in ("headers", "stream"):
            raise AttributeError(name)
        headers, content, _ = self._parts
        if name == "headers":
            self.headers = httpx.Headers(list(headers))
        else:
            self.stream = httpx.ByteStream(content)
        return self.__dict__[name]

    @property
    def destination(self) -> Destination:
        """Raises `httpx.UnsupportedProtocol` where HTTP leads nowhere."""
        known = self._parts[2]
        return known if known is not None and known.url is self.url else destination_of(self.url)

    @property
    def raw_headers(self) -> _Headers:
        """The headers as they are now."""
        return self.headers.raw if "headers" in self.__dict__ else self._parts[0]

    @property
    def whole_body(self) -> bytes | None:
        """Its body; None where that is what `stream` gives."""
        return None if "stream" in self.__dict__ else self._parts[1]


def encoded(request: httpx.Request, destination: Destination, content: bytes) -> bytes:
    """Head and body. Raises `httpx.UnsupportedProtocol` for a method, a name or a value that would not be read as one."""
    headers = request.raw_headers if isinstance(request, PlainRequest) else request.headers.raw
    form = _form(request.method, destination.origin, tuple([name for name, _ in headers]))
    values = [value for _, value in headers]
    if form.left_out:
        values = [value for place, value in enumerate(values) if place not in form.left_out]
    head = form.text % (destination.target, *values)
    if not form.lines == head.count(b"\n") == head.count(b"\r") or b"\0" in head:
        raise httpx.UnsupportedProtocol("a header that HTTP cannot carry")
    last = b""
    if content or request.method in _ANNOUNCED_IF_EMPTY:
        last = b"Content-Length: %d\r\n" % len(content)
    if destination.authorization is not None and not form.authorized:
        last += destination.authorization
    return b"%b%b\r\n%b" % (head, last, content)


class _Form(NamedTuple):
    """Requests with the same headers, but for their values: the text with gaps for the target and the values, how many lines that
    is, the places of the headers that are left out, and whether one of them authorizes."""

    text: bytes
    lines: int
    left_out: frozenset[int]
    authorized: bool


@lru_cache(maxsize=1024)
def _form(method: str, origin: Origin, names: tuple[bytes, ...]) -> _Form:
    lower = [_lower(name) for name in names]
    defaults = [line for name, line in origin.headers.items() if name not in lower]
    left_out = frozenset(place for place, name in enumerate(lower) if name in _FRAMING)
    own = [_verbatim(name) + b": %b" for place, name in enumerate(names) if place not in left_out]
    lines = [_verbatim(_method(method)) + b" %b HTTP/1.1", *map(_verbatim, defaults), *own, b""]
    return _Form(b"\r\n".join(lines), len(lines) - 1, left_out, b"authorization" in lower)


def _verbatim(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _lower(name: bytes) -> bytes:
    """A header's name, to compare by."""
    if _TOKEN.fullmatch(name) is None:
        raise httpx.UnsupportedProtocol("a header that HTTP cannot carry")
    return name.lower()


def _method(method: str) -> bytes:
    named = method.encode("ascii", "replace")
    if _TOKEN.fullmatch(named) is None:
        raise httpx.UnsupportedProtocol("a method that HTTP cannot carry")
    return named


def _basic(userinfo: bytes) -> bytes:
    user, _, password = userinfo.partition(b":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return b"Authorization: Basic %b\r\n" % b64encode(pair)
