"""A request as the bytes that go over a connection, and where they go.

Whatever HTTP cannot carry is refused with `httpx.UnsupportedProtocol`, before anything is connected to. What the refusal says is
nothing of the address or the headers: they may hold a password.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote_to_bytes

import httpx

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(rb"[0-9A-Za-z._~-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""A name or an address; one of IPv6 comes without its brackets."""
_FRAMING: Final = {b"content-length", b"transfer-encoding"}
"""What says how long the body is. It is sent whole, so that its length alone does."""
_ANNOUNCED_IF_EMPTY: Final = {"POST", "PUT", "PATCH"}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections lead to; those to the same one stand in for each other. `headers`: the lines that a request to it has
    unless it brings its own, by their names in lower case."""

    host: str
    port: int
    tls: bool
    headers: Mapping[bytes, bytes]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def origin_of(url: httpx.URL) -> Origin:
    """The one object for that scheme, host and port. Raises `httpx.UnsupportedProtocol` where HTTP leads nowhere."""
    return _origin(url.scheme, url.raw_host, url.port)


@lru_cache(maxsize=4096)
def _origin(scheme: str, host: bytes, port: int | None) -> Origin:
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


def encoded(request: httpx.Request, origin: Origin, content: bytes) -> bytes:
    """Head and body. Raises `httpx.UnsupportedProtocol` for a method, a name or a value that would not be read as one."""
    url, method = request.url, request.method
    defaults = {**origin.headers}
    own = []
    for name, value in request.headers.raw:
        lower = _lower(name)
        if lower not in _FRAMING:
            defaults.pop(lower, None)
            own.append(b"%b: %b" % (name, value))
    if content or method in _ANNOUNCED_IF_EMPTY:
        own.append(b"Content-Length: %d" % len(content))
    if url.userinfo and "authorization" not in request.headers:
        own.append(_basic(url.userinfo))
    lines = [b"%b %b HTTP/1.1" % (_method(method), url.raw_path), *defaults.values(), *own, b"", b""]
    head = b"\r\n".join(lines)
    if not len(lines) - 1 == head.count(b"\n") == head.count(b"\r") or b"\0" in head:
        raise httpx.UnsupportedProtocol("a header that HTTP cannot carry")
    return head + content


@lru_cache(maxsize=4096)
def _lower(name: bytes) -> bytes:
    """A header's name, to compare by."""
    if _TOKEN.fullmatch(name) is None:
        raise httpx.UnsupportedProtocol("a header that HTTP cannot carry")
    return name.lower()


@lru_cache(maxsize=64)
def _method(method: str) -> bytes:
    named = method.encode("ascii", "replace")
    if _TOKEN.fullmatch(named) is None:
        raise httpx.UnsupportedProtocol("a method that HTTP cannot carry")
    return named


def _basic(userinfo: bytes) -> bytes:
    user, _, password = userinfo.partition(b":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return b"Authorization: Basic " + b64encode(pair)
