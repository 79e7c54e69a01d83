"""A service that answers a client as a test wrote it down: at httpx's seam, in the test's own time."""

from collections.abc import Mapping
from typing import Any

import httpx

from reservation_forwarder_client import AsyncForwarderClient, RetryPolicy
from tests.support.memory.clock import ManualClock

Step = httpx.Response | Exception | float
"""An answer; no answer; or seconds that pass before the next step."""


class ScriptedService(httpx.AsyncBaseTransport):
    """Takes one step after the other for each request, the last one for ever, and keeps what it was sent, and when."""

    def __init__(self, clock: ManualClock, *steps: Step) -> None:
        self._clock = clock
        self._steps = list(steps)
        self.requests: list[httpx.Request] = []
        self.times: list[float] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.requests.append(request)
        self.times.append(self._clock.monotonic())
        while isinstance(step := self._next(), float):
            await self._clock.sleep(step)
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step.status_code, headers=step.headers, content=step.content)

    def _next(self) -> Step:
        return self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]

    def client(self, retry_policy: RetryPolicy | None = None) -> AsyncForwarderClient:
        """A client of it, in its time."""
        return AsyncForwarderClient(
            "http://forwarder.test",
            token="token",
            workspace="alpha",
            account="alpha-1",
            transport=self,
            retry_policy=retry_policy,
            clock=self._clock,
        )


def problem(status: int, code: str, headers: Mapping[str, str] | None = None, **more: Any) -> httpx.Response:
    """A refusal."""
    members = {
        "type": f"/problems/{code}",
        "title": code,
        "status": status,
        "detail": f"It is {code}.",
        "code": code,
        **more,
    }
    return httpx.Response(status, json=members, headers={"Content-Type": "application/problem+json", **(headers or {})})
