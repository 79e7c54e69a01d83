"""Responses: whole ones, and problems (RFC 9457). Knows nothing of reservations beyond `Problem`."""

import functools
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, Protocol, runtime_checkable

from pydantic_core import to_json
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.value import value

JSON: Final = b"application/json"
PROBLEM_JSON: Final = b"application/problem+json"
NO_STORE: Final = (b"cache-control", b"no-store")
"""For responses with guests in them: no cache on the way may keep them."""

Routes = Sequence[BaseRoute]
"""What a stage contributes to an application: its addresses and what responds there."""


@runtime_checkable
class DirectEndpoint(Protocol):
    """What responds at one address, and needs nothing of the framework for it. It is an ASGI application too."""

    async def respond(self, scope: Scope, receive: Receive) -> "Response":
        """The response. Raises `ClientDisconnect`."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


@value(frozen=True, slots=True)
class Response:
    """One whole response, and the ASGI application that sends it. `headers` are as ASGI has them: lower-case names."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = JSON

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", self.media_type),
            (b"content-length", b"%d" % len(self.body)),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def problem_response(problem: Problem, *headers: tuple[bytes, bytes], retry_after_seconds: int = 1) -> Response:
    """The response that refuses with `problem`. A 401 says which credential is asked for (RFC 9110, section 11.6.1), a 503 when
    to come again."""
    match problem.status:
        case HTTPStatus.UNAUTHORIZED:
            headers = (*headers, (b"www-authenticate", b"Bearer"))
        case HTTPStatus.SERVICE_UNAVAILABLE:
            headers = (*headers, retry_after(retry_after_seconds))
    return Response(problem.status, to_json(problem.as_json()), headers, PROBLEM_JSON)


@functools.lru_cache(maxsize=64)
def retry_after(seconds: int) -> tuple[bytes, bytes]:
    """When to come again."""
    return (b"retry-after", b"%d" % seconds)
