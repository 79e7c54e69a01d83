"""A vendor that answers in turn, whoever asks, and keeps what it was asked."""

import json
from typing import Any

import httpx

Reply = httpx.Response | httpx.HTTPError


class Vendor:
    """For `httpx.MockTransport`. An error is raised, as a transport would."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        assert self._replies, f"asked once too often: {request.method} {request.url}"
        reply = self._replies.pop(0)
        if isinstance(reply, httpx.HTTPError):
            raise reply
        return reply

    @property
    def asked(self) -> list[str]:
        """Methods and paths, in order."""
        return [f"{request.method} {request.url.path}" for request in self.requests]

    def sent(self, number: int = -1) -> Any:
        """The JSON that a request brought."""
        return json.loads(self.requests[number].content)


def answered(status: int, body: object, headers: dict[str, str] | None = None) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.Response(status, content=content, headers=headers)
