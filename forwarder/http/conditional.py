"""Conditional requests (RFC 9110, section 13): what a response is tagged with, and whether a caller has it already. Pure but
for the form of a response.

Responses with guests in them stay `no-store`: a tag is for a caller who keeps a record on purpose, where it chose to. A cache
on the way or in a browser that kept guests' data only to revalidate it would be nobody's choice.
"""

import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import blake2b

from starlette.types import Receive, Scope, Send

from forwarder.http.messages import NO_STORE, Header, Response, added_headers

_TAG = re.compile(r'(?:W/)?("[!#-~\x80-\xff]*")')
_TAGS = re.compile(rf"[\t ,]*(?:{_TAG.pattern}[\t ]*(?:,[\t ,]*|$))+")
_DIGEST_BYTES = 15


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
