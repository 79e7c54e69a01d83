"""Refuses request heads that the parser accepts: version, framing and `Host` (RFC 9112). Pure.

The parser itself refuses an ambiguous message length: both `Content-Length` and `Transfer-Encoding`, either of them twice, bare
LF, folded lines, space before a colon. `tests/stage/http/test_request_framing.py` verifies that.
"""

import functools
import re
from collections.abc import Sequence
from http import HTTPStatus
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

_FRAMING: Final = frozenset({b"host", b"transfer-encoding", b"content-length"})
_VERSIONS: Final = frozenset({"1.0", "1.1"})
_MAX_LENGTH_DIGITS: Final = 19
"""More digits than any length needs; Python refuses to parse thousands of digits."""
_HOST: Final = re.compile(
    rb"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?"
)
_ABSOLUTE: Final = re.compile(rb"https?://(?P<authority>[^/?#]+)(?=[/?#]|$)", re.IGNORECASE)


class HeadFault(NamedTuple):
    """The response that refuses a head: its detail, and its status."""

    detail: str
    status: HTTPStatus = HTTPStatus.BAD_REQUEST


def head_fault(method: bytes, version: str, target: bytes, lines: Sequence[tuple[bytes, bytes]]) -> HeadFault | None:
    """Why the head is refused; None if it is accepted. Names in `lines` are in lower case."""
    if version not in _VERSIONS:
        return HeadFault("This server speaks HTTP/1.1 and HTTP/1.0.")
    if method == b"CONNECT":
        return HeadFault("CONNECT is not supported: this server is not a proxy.", HTTPStatus.NOT_IMPLEMENTED)
    hosts = 0
    for name, field in lines:
        if name in _FRAMING:
            if name == b"host":
                hosts += 1
                if not is_host(field):
                    return HeadFault("The Host header must be a host name or an IP address, with a port or without.")
            elif name == b"content-length":
                if len(field) > _MAX_LENGTH_DIGITS:
                    return HeadFault("The Content-Length header must be a number of at most 19 digits.")
            elif version == "1.0" or field.lower() != b"chunked":
                return HeadFault("The Transfer-Encoding header must be chunked, in HTTP/1.1 only.")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return HeadFault(f"A request must have one Host header, not {hosts}.")
    if target[:1] != b"/" and target != b"*" and authority_of(target) is None:
        return HeadFault("The target must be a path, such as /healthz, or an http:// or https:// URL.")
    return None


def authority_of(target: bytes) -> bytes | None:
    """The host of a target in absolute form, which replaces `Host` (RFC 9112, section 3.2.2)."""
    found = _ABSOLUTE.match(target)
    return found["authority"] if found is not None and is_host(found["authority"]) else None


@functools.lru_cache(maxsize=256)
def is_host(field: bytes) -> bool:
    """Whether `field` is a valid `Host`; an empty one is valid (RFC 9110, section 7.2)."""
    found = _HOST.fullmatch(field)
    if found is None:
        return False
    try:
        return found["ipv6"] is None or bool(IPv6Address(found["ipv6"].decode()))
    except AddressValueError:
        return False
