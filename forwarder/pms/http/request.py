"""A request to a PMS, and the bytes that it is on a connection.

What HTTP cannot carry is refused with `NotSent` (`pms_address_invalid`), before anything is connected to. The refusal quotes
neither the address nor a header: they may hold a password.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

import httpx

from forwarder.pms.http.errors import NotSent, invalid_address
from forwarder.pms.http.response import Headers

_PORTS: Final = {"http": 80, "https": 443}
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(rb"[0-9A-Za-z._~-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""A name or an address; one of IPv6 comes without its brackets."""
_FRAMING: Final = {b"content-length", b"transfer-encoding"}
"""What says how long the body is. It is sent whole, so that its length alone does."""
_ANNOUNCED_IF_EMPTY: Final = {"POST", "PUT", "PATCH"}
_VISIBLE_ASCII = re.compile(rb"[\x21-\x7e]+")
_DOT_SEGMENTS = {"", ".", ".."}
_OF_A_QUERY: Final = "!$%&'()*+,;:@/?=~[]"
"""What stands in a query as it is; an encoded one has nothing else."""


@dataclass(frozen=True, slots=True)
class Request:
    """`url` is without its query, which comes encoded. `Host` and `Content-Length` are added as it is sent. What may hold a
    credential, a card or the guest is not in its `repr`."""

    method: str
    url: str
    headers: Headers = field(default=(), repr=False)
    content: bytes = field(default=b"", repr=False)
    query: str = field(default="", repr=False)


def bearer(credential: str) -> Headers:
    """The `Authorization` header; as `credential_header`."""
    return credential_header(b"Authorization", credential, scheme=b"Bearer ")


def credential_header(name: bytes, credential: str, *, scheme: bytes = b"") -> Headers:
    """The header that carries it; none for an account without a credential. Raises `NotSent` where no header can carry it."""
    token = credential.encode()
    if not token:
        return ()
    if _VISIBLE_ASCII.fullmatch(token) is None:
        raise NotSent("pms_credential_invalid", "The account's credential is not made of visible ASCII characters.")
    return ((name, scheme + token),)


def path_segment(identifier: str) -> str | None:
    """`identifier` as one segment of a path; None for the few that no path can name, since they would mean another one."""
    return None if identifier in _DOT_SEGMENTS else quote(identifier, safe="")


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

    origin: Origin
    target: bytes
    authorization: bytes | None


@lru_cache(maxsize=4096)
def destination_of(url: str) -> Destination:
    """Cached, because an account's pushes all go to one address or a few, and parsing one costs 15 µs."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise invalid_address("The account's base URL is not a URL.") from error
    origin = _origin(parsed.scheme, parsed.raw_host, parsed.port)
    return Destination(origin, parsed.raw_path, _basic(parsed.userinfo) if parsed.userinfo else None)


@lru_cache(maxsize=4096)
def _origin(scheme: str, host: bytes, port: int | None) -> Origin:
    """The one object for that scheme, host and port."""
    if scheme not in _PORTS or _HOST.fullmatch(host) is None:
        raise invalid_address("The account's base URL is not an http or https address.")
    name = b"[%b]" % host if b":" in host else host
    if port is not None:
        name += b":%d" % port
    lines = {
        b"host": b"Host: " + name,
        b"user-agent": b"User-Agent: reservation-forwarder",
        b"accept-encoding": b"Accept-Encoding: identity",
    }
    return Origin(host.decode("ascii"), port or _PORTS[scheme], scheme == "https", MappingProxyType(lines))


def encoded(request: Request, destination: Destination) -> bytes:
    """Head and body. Raises `NotSent` for a method, a name or a value that would not be read as one."""
    headers, content = request.headers, request.content
    form = _form(request.method, destination.origin, tuple([name for name, _ in headers]))
    values = [value for _, value in headers]
    if form.left_out:
        values = [value for place, value in enumerate(values) if place not in form.left_out]
    head = form.text % (_target(destination, request.query), *values)
    if not form.lines == head.count(b"\n") == head.count(b"\r") or b"\0" in head:
        raise invalid_address("A header of the request is not one that HTTP can carry.")
    last = b""
    if content or request.method in _ANNOUNCED_IF_EMPTY:
        last = b"Content-Length: %d\r\n" % len(content)
    if destination.authorization is not None and not form.authorized:
        last += destination.authorization
    return b"%b%b\r\n%b" % (head, last, content)


def _target(destination: Destination, query: str) -> bytes:
    if not query:
        return destination.target
    return b"%b?%b" % (destination.target.partition(b"?")[0], quote(query, safe=_OF_A_QUERY).encode("ascii"))


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
        raise invalid_address("A header of the request is not one that HTTP can carry.")
    return name.lower()


def _method(method: str) -> bytes:
    named = method.encode("ascii", "replace")
    if _TOKEN.fullmatch(named) is None:
        raise invalid_address("The method of the request is not one that HTTP can carry.")
    return named


def _basic(userinfo: bytes) -> bytes:
    user, _, password = userinfo.partition(b":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return b"Authorization: Basic %b\r\n" % b64encode(pair)
