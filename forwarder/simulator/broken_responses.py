"""Faulty responses: JSON with wrong types, a hanging one, a dripping one, and a reset connection."""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope, Send

from forwarder.http.messages import Response
from forwarder.http.open_connections import connection_of
from forwarder.process.clock import Clock
from forwarder.process.loops import first_of

_DEPTH = 50

UNBOOKED: Final = to_json(
    {
        "id": 1,
        "reference": "R1",
        "status": "CONFIRMED",
        "data": [{"id": 1, "reference": "R1"}],
        "bookings": [{"id": 1, "status": "Booked", "external_reference": "R1"}],
        "clients": [{"id": 1}],
    }
)
"""The body to corrupt if nothing was booked, with something for every kind of PMS in it."""

Way = Callable[[Any], Any]


def mistyped(answer: bytes, turn: int) -> bytes:
    """The JSON text `answer` with wrong types: `turn` cycles through the ways."""
    return to_json(WAYS[turn % len(WAYS)](from_json(answer)))


def _objects_for_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: {"value": part} if _names_an_id(name) else _objects_for_ids(part) for name, part in value.items()}
    return [_objects_for_ids(part) for part in value] if isinstance(value, list) else value


def _names_an_id(name: str) -> bool:
    return name == "id" or name.endswith(("Id", "ID", "_id"))


def _lists_for_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return [[name, _lists_for_objects(part)] for name, part in value.items()]
    return [_lists_for_objects(part) for part in value] if isinstance(value, list) else value


def _numbers_for_texts(value: Any) -> Any:
    return _with_leaves(value, lambda leaf: len(leaf) if isinstance(leaf, str) else leaf)


def _nulls(value: Any) -> Any:
    return _with_leaves(value, lambda _: None)


def _nested_nulls(value: Any) -> Any:
    nested: Any = None
    for level in range(_DEPTH):
        nested = {"value": nested} if level % 2 else [nested]
    return _with_leaves(value, lambda _: nested)


def _with_leaves(value: Any, replaced: Way) -> Any:
    if isinstance(value, dict):
        return {name: _with_leaves(part, replaced) for name, part in value.items()}
    return [_with_leaves(part, replaced) for part in value] if isinstance(value, list) else replaced(value)


WAYS: Final[Sequence[Way]] = (_objects_for_ids, _lists_for_objects, _numbers_for_texts, _nulls, _nested_nulls)
"""Ways to corrupt types."""


_DRIP_SECONDS = 0.5
_SHORTEST_DRIP = 1_000


class Hang:
    """Never responds while the client and the fault stay; then drops the connection."""

    def __init__(self, lifted: asyncio.Event) -> None:
        self._lifted = lifted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await first_of(disconnected(receive), self._lifted.wait())
        await reset(scope, receive, send)


class Drip:
    """Sends status and headers of `answer` at once, and then its body a byte at a time: for at least eight minutes, longer than
    any push may wait. Drops the connection when the client leaves or the fault is lifted."""

    def __init__(self, answer: Response, clock: Clock, lifted: asyncio.Event) -> None:
        self._answer = answer
        self._clock = clock
        self._lifted = lifted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dripping = asyncio.ensure_future(self._drip(send))
        await first_of(dripping, disconnected(receive), self._lifted.wait())
        if dripping.cancelled():
            await reset(scope, receive, send)

    async def _drip(self, send: Send) -> None:
        # JSON may start with white space: the content comes at the very end.
        body = self._answer.body.rjust(_SHORTEST_DRIP)
        headers = [
            (b"content-type", self._answer.media_type),
            (b"content-length", b"%d" % len(body)),
            *self._answer.headers,
        ]
        await send({"type": "http.response.start", "status": self._answer.status, "headers": headers})
        for position in range(len(body)):
            await send({"type": "http.response.body", "body": body[position : position + 1], "more_body": True})
            await self._clock.sleep(_DRIP_SECONDS)
        await send({"type": "http.response.body", "body": b""})


async def reset(scope: Scope, receive: Receive, _send: Send) -> None:
    """Resets the connection. Raises `ConnectionResetError` if there is none: then that is the response."""
    connection = connection_of(scope)
    if connection is None:
        raise ConnectionResetError("reset by a fault that was asked for")
    peer = connection.get_extra_info("socket")
    if peer is not None and not connection.is_closing():
        # Lingering for no time makes the kernel send a reset instead of an orderly end.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.abort()
    await disconnected(receive)


async def disconnected(receive: Receive) -> None:
    """Returns when the client has disconnected; ignores what it still sends."""
    while (await receive())["type"] != "http.disconnect":
        pass
