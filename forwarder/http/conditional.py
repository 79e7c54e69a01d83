"""Conditional requests (RFC 9110, section 13): what a response is tagged with, and whether a caller has it already. And files that
stay as they are while the process runs: each is tagged and compressed once, when it is first asked for.

Responses with guests in them stay `no-store`: a tag is for a caller who keeps a record on purpose, where it chose to. A cache
on the way or in a browser that kept guests' data only to revalidate it would be nobody's choice.
"""

import gzip
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from starlette.types import Receive, Scope, Send

from forwarder.http.messages import NO_STORE, Header, Response, added_headers, header_map

_TAG = re.compile(r'(?:W/)?("[!#-~\x80-\xff]*")')
_TAGS = re.compile(rf"[\t ,]*(?:{_TAG.pattern}[\t ]*(?:,[\t ,]*|$))+")
_DIGEST_BYTES = 15
_REFUSED: Final = re.compile(r"gzip\s*;\s*q=0(\.0{0,3})?\s*(,|$)", re.IGNORECASE)
_TAKEN: Final = re.compile(r"(^|,)\s*(gzip|\*)\s*(;|,|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NotModified:
    """304: what the caller has is what it would be sent. An ASGI application, as `Response`; it has no body, nor headers of one."""

    headers: tuple[Header, ...]

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [*self.headers, *added_headers(scope)]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def entity_tag(body: bytes) -> str:
    """A strong one: a digest of the very bytes, so that nothing that is shown can change without it."""
    return f'"{urlsafe_b64encode(blake2b(body, digest_size=_DIGEST_BYTES).digest()).decode()}"'


def matches(if_none_match: str, tag: str) -> bool:
    """Whether the header's list of tags matches `tag`, by the weak comparison, or is `*`. One that is not written as it should be
    matches none: then the caller is sent what there is."""
    if if_none_match.strip() == "*":
        return True
    return _TAGS.fullmatch(if_none_match) is not None and tag in _TAG.findall(if_none_match)


def conditional_response(body: bytes, if_none_match: str | None, *headers: Header) -> Response | NotModified:
    """`body`, unless the caller has it already."""
    tag = entity_tag(body)
    headers = (NO_STORE, (b"etag", tag.encode()), *headers)
    if if_none_match is not None and matches(if_none_match, tag):
        return NotModified(headers)
    return Response(200, body, headers)


@dataclass(frozen=True, slots=True)
class _Representation:
    body: bytes
    tag: str


@cache
def _plain(path: Path) -> _Representation:
    body = path.read_bytes()
    return _Representation(body, entity_tag(body))


@cache
def _compressed(path: Path) -> _Representation:
    # Without the time in it, so that every process has the same tag.
    body = gzip.compress(_plain(path).body, mtime=0)
    return _Representation(body, entity_tag(body))


def file_response(scope: Scope, path: Path, media_type: bytes, *headers: Header) -> Response | NotModified:
    """The file, compressed for those who take that; 304 for those who have it. Reads and compresses when the file is asked for the
    first time, so it is to be called in a thread. Raises `OSError`."""
    asked = header_map(scope)
    encodings = asked.get("accept-encoding", "")
    zipped = _TAKEN.search(encodings) is not None and _REFUSED.search(encodings) is None
    file = _compressed(path) if zipped else _plain(path)
    headers = (*headers, (b"etag", file.tag.encode()))
    if matches(asked.get("if-none-match", ""), file.tag):
        return NotModified(headers)
    encoded: tuple[Header, ...] = ((b"content-encoding", b"gzip"),) if zipped else ()
    return Response(200, file.body, (*headers, *encoded), media_type)
