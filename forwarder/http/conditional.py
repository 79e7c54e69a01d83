"""Conditional requests (RFC 9110, section 13): entity tags, and 304 if the caller has the current version. Also static files, which
are tagged and compressed once, on the first request.

Responses with guests' data stay `no-store`. Their tags are for callers that store records on purpose; caches in proxies and
browsers must not keep guests' data only to revalidate it."""

import gzip
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from starlette.types import Receive, Scope, Send

from forwarder.http.messages import ADDED, NO_STORE, Header, Response, header_map

_TAG = re.compile(r'(?:W/)?("[!#-~\x80-\xff]*")')
_TAGS = re.compile(rf"[\t ,]*(?:{_TAG.pattern}[\t ]*(?:,[\t ,]*|$))+")
_REFUSED: Final = re.compile(r"gzip\s*;\s*q=0(\.0{0,3})?\s*(,|$)", re.IGNORECASE)
_TAKEN: Final = re.compile(r"(^|,)\s*(gzip|\*)\s*(;|,|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NotModified:
    """304: the caller has the current version. An ASGI application, like `Response`, without a body or its headers."""

    headers: tuple[Header, ...]

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [*self.headers, *scope.get(ADDED, ())]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def entity_tag(body: bytes) -> str:
    """A strong tag: a digest of the body, so that it changes with any byte."""
    return f'"{urlsafe_b64encode(blake2b(body, digest_size=15).digest()).decode()}"'


def matches(if_none_match: str, tag: str) -> bool:
    """Whether the header's list of tags matches `tag`, by the weak comparison, or is `*`. A malformed list matches nothing."""
    return if_none_match.strip() == "*" or (
        _TAGS.fullmatch(if_none_match) is not None and tag in _TAG.findall(if_none_match)
    )


def conditional_response(body: bytes, if_none_match: str | None, *headers: Header) -> Response | NotModified:
    """`body`, unless the caller has it already."""
    tag = entity_tag(body)
    headers = (NO_STORE, (b"etag", tag.encode()), *headers)
    if if_none_match is not None and matches(if_none_match, tag):
        return NotModified(headers)
    return Response(200, body, headers)


@cache
def _read(path: Path, zipped: bool) -> tuple[bytes, str]:  # noqa: FBT001 - the key of the cache
    # Without the time in it, every process has the same tag.
    body = gzip.compress(path.read_bytes(), mtime=0) if zipped else path.read_bytes()
    return body, entity_tag(body)


def file_response(scope: Scope, path: Path, media_type: bytes, *headers: Header) -> Response | NotModified:
    """The file, compressed if the caller accepts that; 304 if it has it. Blocks on the first request. Raises `OSError`."""
    asked = header_map(scope)
    encodings = asked.get("accept-encoding", "")
    zipped = _TAKEN.search(encodings) is not None and _REFUSED.search(encodings) is None
    body, tag = _read(path, zipped)
    headers = (*headers, (b"etag", tag.encode()))
    if matches(asked.get("if-none-match", ""), tag):
        return NotModified(headers)
    encoded: tuple[Header, ...] = ((b"content-encoding", b"gzip"),) if zipped else ()
    return Response(200, body, (*headers, *encoded), media_type)
