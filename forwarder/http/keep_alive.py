"""How long a connection is kept on which nothing is asked: one timer a connection, where uvicorn sets one after every answer."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class KeepAliveProtocol(HttpToolsProtocol):
    """Closes a connection once nothing came for `timeout_keep_alive` seconds after an answer, as uvicorn's does."""

    _idle_since: float | None = None
    _looking: asyncio.TimerHandle | None = None

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self._looking is None:
            self._looking = self.loop.call_later(self.timeout_keep_alive, self._look)

    def _look(self) -> None:
        """Close it if it was idle all the time; else look again when it may have been."""
        self._looking = None
        if self._idle_since is None:
            return  # at work: the answer to that sets the timer again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._looking = self.loop.call_later(left, self._look)
        else:
            self.timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)
