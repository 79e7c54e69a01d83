"""Faults on demand: what a simulated PMS gets wrong, for how long, and how often; and the broken responses. An order is given for
one name and holds for all PMSs under that name. Orders live in memory only."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from forwarder.http.connections import TRANSPORT
from forwarder.http.messages import Response
from forwarder.process.clock import Clock
from forwarder.process.loops import first_of

Mode = Literal[
    "none",
    "down",  # 503
    "throttle",  # 429
    "error500",
    "redirect",  # 302
    "garbage",  # 201, and a body that is not JSON
    "huge",  # 201, and a body of 10 MB
    "wrong_types",  # 201, and JSON with wrong types: in a different way each time
    "hang",  # no response until the fault is lifted, and then none either
    "drip",  # status and headers at once, then the body a byte at a time: never whole within a push, even if the fault is lifted
    "reset",  # the connection is reset
    "hang_after_booking",
    "drip_after_booking",
    "reset_after_booking",
    "error500_after_booking",
    "down_after_booking",  # 503, from a gateway or a cache in front of it
    "redirect_after_booking",  # 302
    "garbage_after_booking",
    "wrong_types_after_booking",
]


class Faults(BaseModel):
    """An order. `delay_ms` delays every response; `mode` hits a share of `rate` of the requests, at most `count` of them, and none
    from `until` on. `scope`: every request, or only those that make bookings; `…_after_booking` hits once one is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    delay_ms: Annotated[float, Field(ge=0, le=600_000)] = 0
    mode: Mode = "none"
    rate: Annotated[float, Field(ge=0, le=1)] = 1
    retry_after: Annotated[float, Field(ge=0)] | None = None
    count: Annotated[int, Field(ge=0)] | None = None
    until: AwareDatetime | None = None
    scope: Literal["all", "bookings"] = "all"

    @property
    def after_booking(self) -> bool:
        return self.mode.endswith("_after_booking")


@dataclass(slots=True)
class Order:
    """Faults in force. `met` is set when the first request was hit; `lifted` when they end: hanging responses then end too."""

    faults: Faults
    struck: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)
    lifted: asyncio.Event = field(default_factory=asyncio.Event)


class FaultBoard:
    """The orders, by name. `everywhere`: for names without one. `seed` decides which requests a rate below 1 hits."""

    def __init__(self, clock: Clock, everywhere: Faults | None, seed: int | None = None) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 - no secret hangs on it
        self._everywhere = None if everywhere is None else Order(everywhere)
        self._orders: dict[str, Order] = {}

    def order(self, name: str, faults: Faults) -> None:
        self.lift(name)
        self._orders[name] = Order(faults)

    def lift(self, name: str) -> None:
        if name in self._orders:
            self._orders.pop(name).lifted.set()

    def at(self, name: str) -> Order | None:
        return self._orders.get(name, self._everywhere)

    def strikes(self, order: Order, *, books: bool) -> bool:
        faults, chance = order.faults, self._random.random()
        spent = faults.count is not None and order.struck >= faults.count
        over = faults.until is not None and self._clock.now() >= faults.until
        passed_over = not books and (faults.after_booking or faults.scope == "bookings")
        if faults.mode == "none" or spent or over or passed_over or chance >= faults.rate:
            return False
        order.struck += 1
        order.met.set()
        return True


# --- broken responses ---

UNBOOKED: Final = (
    b'{"id":1,"reference":"R1","status":"CONFIRMED","data":[{"id":1,"reference":"R1"}],'
    b'"bookings":[{"id":1,"status":"Booked","external_reference":"R1"}],"clients":[{"id":1}]}'
)
"""The body to corrupt if nothing was booked, with something for every kind of PMS in it."""


def with_leaves(value: Any, replaced: Callable[[Any], Any], rebuilt: Callable[[dict[str, Any]], Any] = dict) -> Any:
    """The JSON value with each of its scalars replaced, and each of its objects rebuilt."""
    if isinstance(value, dict):
        return rebuilt({name: with_leaves(part, replaced, rebuilt) for name, part in value.items()})
    return [with_leaves(part, replaced, rebuilt) for part in value] if isinstance(value, list) else replaced(value)


def lists_for_objects(value: Any) -> Any:
    """The JSON value with a list of names and values for each object."""
    return with_leaves(value, lambda leaf: leaf, lambda built: [list(each) for each in built.items()])


def _objects_for_ids(built: dict[str, Any]) -> dict[str, Any]:
    is_id = {name: name == "id" or name.endswith(("Id", "ID", "_id")) for name in built}
    return {name: {"value": part} if is_id[name] else part for name, part in built.items()}


WAYS: Final[Sequence[Callable[[Any], Any]]] = (
    lambda value: with_leaves(value, lambda leaf: leaf, _objects_for_ids),
    lists_for_objects,
    lambda value: with_leaves(value, lambda leaf: len(leaf) if isinstance(leaf, str) else leaf),
    lambda value: with_leaves(value, lambda _: None),
    lambda value: with_leaves(value, lambda _: from_json(b'[{"value":' * 25 + b"null" + b"}]" * 25)),
)
"""Ways to corrupt types."""


def mistyped(answer: bytes, turn: int) -> bytes:
    """The JSON text `answer` with wrong types: `turn` cycles through the ways."""
    return to_json(WAYS[turn % len(WAYS)](from_json(answer)))


def hang(lifted: asyncio.Event) -> ASGIApp:
    """Never responds while the client and the fault stay; then drops the connection."""

    async def hanging(scope: Scope, receive: Receive, send: Send) -> None:
        await first_of(disconnected(receive), lifted.wait())
        await reset(scope, receive, send)

    return hanging


def drip(answer: Response, clock: Clock, lifted: asyncio.Event) -> ASGIApp:
    """Sends status and headers of `answer` at once, and then its body a byte at a time: for at least eight minutes, longer than
    any push may wait. Drops the connection when the client leaves or the fault is lifted."""
    # JSON may start with white space: the content comes at the very end.
    body = answer.body.rjust(1_000)
    headers = [(b"content-type", answer.media_type), (b"content-length", b"%d" % len(body)), *answer.headers]

    async def drops(send: Send) -> None:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        for position in range(len(body)):
            await send({"type": "http.response.body", "body": body[position : position + 1], "more_body": True})
            await clock.sleep(0.5)
        await send({"type": "http.response.body", "body": b""})

    async def dripping(scope: Scope, receive: Receive, send: Send) -> None:
        all_drops = asyncio.ensure_future(drops(send))
        await first_of(all_drops, disconnected(receive), lifted.wait())
        if all_drops.cancelled():
            await reset(scope, receive, send)

    return dripping


async def reset(scope: Scope, receive: Receive, _send: Send) -> None:
    """Resets the connection. Raises `ConnectionResetError` if there is none: then that is the response."""
    connection: asyncio.Transport | None = scope.get("state", {}).get(TRANSPORT)
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
