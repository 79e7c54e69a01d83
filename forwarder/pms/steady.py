"""A look-up through a list that comes in pages is believed only where the list did not change while it was read.

A booking that is cancelled, or moved, while pages are read shifts those after it: ours may slip from a page that was not read yet
to one that was. So an absence is read again until two readings in turn brought the same pages.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.response import Response
from forwarder.reservation.outcome import Absent, Deferred, LookupOutcome

MAX_READINGS: Final = 4

_UNSTEADY: Final = Deferred("pms_list_changing", "The PMS's list of reservations changed each time while it was read.")


async def steady(look_up: Callable[[Send], Awaitable[LookupOutcome]], send: Send) -> LookupOutcome:
    """The outcome of `look_up`, which sends its requests with the given `send`."""
    before: list[bytes] | None = None
    for _ in range(MAX_READINGS):
        pages: list[tuple[str, bytes]] = []

        async def noted(request: Request, into: list[tuple[str, bytes]] = pages) -> Response:
            response = await send(request)
            into.append((request.url, _listed(response.content)))
            return response

        found = await look_up(noted)
        if not isinstance(found, Absent):
            return found
        urls = Counter(url for url, _ in pages)
        if max(urls.values(), default=0) < 2:  # noqa: PLR2004 - one page is as it was at one moment
            return found
        shown = [page for url, page in pages if urls[url] > 1]
        if shown == before:
            return found
        before = shown
    return _UNSTEADY


def _listed(content: bytes) -> bytes:
    """A digest of the lists and numbers of a page, which may be large. What else is around them may be of the answer alone, such as
    its time."""
    with suppress(ValueError):
        content = to_json(_parts(from_json(content)))
    return sha256(content).digest()


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _parts(part) for name, part in value.items() if isinstance(part, dict | list | int)}
    return value
