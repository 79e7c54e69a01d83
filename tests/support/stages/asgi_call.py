"""One HTTP call on an ASGI application, message by message: for a client that leaves, or sends its body in pieces."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message


class AsgiCall:
    """A call under way, a POST unless it is said otherwise. `leave` is the client closing its connection."""

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        headers: Mapping[str, str],
        *body: bytes,
        complete: bool = True,
        method: str = "POST",
    ) -> None:
        self.sent: list[Message] = []
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        for number, chunk in enumerate(body, start=1):
            more = not complete or number < len(body)
            self._incoming.put_nowait({"type": "http.request", "body": chunk, "more_body": more})
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        self._task = asyncio.create_task(self._run(app, scope))

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    def cancel(self) -> None:
        self._task.cancel()

    async def ended(self) -> None:
        """Return when the application is done with the call, however it ended."""
        await asyncio.wait([self._task])

    @property
    def unread(self) -> bool:
        """Whether there is something that the application did not read."""
        return not self._incoming.empty()

    @property
    def status(self) -> int | None:
        """The status that was answered; None where nothing was."""
        return self.sent[0]["status"] if self.sent else None

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        await app(scope, self._incoming.get, self._send)

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
