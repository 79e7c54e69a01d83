"""The body of a call: what it is said to be, and all of it, up to a limit. Touches the call alone."""

import functools
import re
from collections.abc import Mapping
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import Receive

_CHARSET: Final = r'\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?;?'
JSON: Final = re.compile("application/json" + _CHARSET, re.IGNORECASE)
NDJSON: Final = re.compile("application/x-ndjson" + _CHARSET, re.IGNORECASE)


def sent_as(media_type: re.Pattern[str], headers: Mapping[str, str]) -> bool:
    """Whether the body is declared to be of that media type, in UTF-8 and not compressed. `headers` by lower-case name."""
    content_type, encoding = headers.get("content-type", ""), headers.get("content-encoding", "identity")
    return media_type.fullmatch(content_type.strip()) is not None and encoding.lower() == "identity"


@functools.lru_cache(maxsize=256)
def declares(media_type: re.Pattern[str], content_type: bytes, encoding: bytes) -> bool:
    """As `sent_as`, of the two header fields as they came: few have more than one form."""
    return sent_as(
        media_type, {"content-type": content_type.decode("latin-1"), "content-encoding": encoding.decode("latin-1")}
    )


async def read_body_up_to(at_most: int, headers: Mapping[str, str], receive: Receive) -> bytes | None:
    """The whole body, or None as soon as it is seen to be longer than `at_most` bytes. Raises `ClientDisconnect`."""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > at_most:
        return None
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > at_most:
            return None
        more = message.get("more_body", False)
    return bytes(body)
