"""uvicorn's side of an exchange: its own cycle of one request and its answer, with the short ways beside the long ones."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from forwarder.http.exchange import Exchange, Header

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application


class Cycle(RequestResponseCycle, Exchange):
    """One request and its answer on a connection."""

    _task: "asyncio.Task[None]"

    def start(
        self, app: "ASGI3Application", loop: asyncio.AbstractEventLoop, under_way: set["asyncio.Task[None]"]
    ) -> None:
        """Answer it, by a task that is one of those `under_way` until its end."""
        self._task = loop.create_task(self._run(app, under_way))
        under_way.add(self._task)

    async def _run(self, app: "ASGI3Application", under_way: set["asyncio.Task[None]"]) -> None:
        try:
            await self.run_asgi(app)
        finally:
            under_way.discard(self._task)
            del self._task  # it refers to this

    def take_body(self) -> bytes | None:
        if self.more_body or self.disconnected or self.response_complete or self.waiting_for_100_continue:
            return None
        body, self.body = bytes(self.body), bytearray()
        self.message_event.clear()  # the next message is that the client left
        self.flow.resume_reading()
        return body

    def write(self, status: int, headers: Sequence[Header], body: bytes) -> bool:
        if self.response_started or self.disconnected or self.flow.write_paused or self.scope["method"] == "HEAD":
            return False
        lines = [b"%s: %s\r\n" % header for header in (*self.default_headers, *headers)]
        closing = (b"connection", b"close") in headers
        if not (closing or self.keep_alive):
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if not len(lines) == head.count(b"\n") == head.count(b"\r"):
            return False  # a line end within a header: the long way refuses it
        self.keep_alive = self.keep_alive and not closing
        self._end(b"%s%s\r\n%s" % (STATUS_LINE[status], head, body))
        return True

    def _end(self, answer: bytes) -> None:
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(answer)
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
