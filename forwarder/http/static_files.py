"""Files that stay as they are while the process runs: each with its tag, and compressed once, when it is first asked for."""

import gzip
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from starlette.types import Scope

from forwarder.http.conditional import NotModified, entity_tag, matches
from forwarder.http.messages import Header, Response, header_map

_REFUSED: Final = re.compile(r"gzip\s*;\s*q=0(\.0{0,3})?\s*(,|$)", re.IGNORECASE)
_TAKEN: Final = re.compile(r"(^|,)\s*(gzip|\*)\s*(;|,|$)", re.IGNORECASE)


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
