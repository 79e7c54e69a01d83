"""Deprecated operations, and the headers that announce it.

`Deprecation` is RFC 9745, `Sunset` RFC 8594; docs/reference/versioning.md has the policy. Other routes are served
unchanged.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forwarder.http.messages import Routes

NOTICE: Final = timedelta(days=365)
"""The minimum time between the announcement and the end of an operation."""


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A deprecated operation, by method and by path as written in the contract. `since` and `sunset` are aware; without a `sunset`
    its end is not decided. `successor`: the path to use instead; `about`: the page that explains it. Raises `ValueError` if the
    notice is shorter than promised."""

    method: str
    path: str
    since: datetime
    sunset: datetime | None = None
    successor: str | None = None
    about: str = "/docs"

    def __post_init__(self) -> None:
        if self.sunset is not None and self.sunset < self.since + NOTICE:
            raise ValueError(f"{self.method} {self.path} ends less than {NOTICE.days} days after it was deprecated")

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of each of its responses."""
        links = [f'<{self.about}>; rel="deprecation"; type="text/html"']
        if self.successor and "{" not in self.successor:  # a template is no address
            links.append(f'<{self.successor}>; rel="successor-version"')
        fields = {"deprecation": f"@{int(self.since.timestamp())}", "link": ", ".join(links)}
        if self.sunset is not None:
            fields["sunset"] = format_datetime(self.sunset.astimezone(UTC), usegmt=True)
        return [(name.encode(), value.encode()) for name, value in fields.items()]


DEPRECATED: Final[tuple[Deprecation, ...]] = ()
"""All deprecated operations; none at present."""


def announcing(routes: Routes, table: Sequence[Deprecation] = DEPRECATED) -> Routes:
    """`routes`, where those in the `table` announce it in all their responses, refusals included."""
    return [_announcing(route, table) for route in routes] if table else routes


def _announcing(route: BaseRoute, table: Sequence[Deprecation]) -> BaseRoute:
    if not isinstance(route, Route):
        return route
    of_path = {one.method: one.headers() for one in table if one.path == route.path}
    if not of_path.keys() & (route.methods or of_path.keys()):
        return route
    announcing_route = copy.copy(route)
    announcing_route.app = _Announcing(route.app, of_path)
    return announcing_route


class _Announcing:
    """Adds to the responses of each method its headers; HEAD is GET."""

    def __init__(self, app: ASGIApp, headers: dict[str, list[tuple[bytes, bytes]]]) -> None:
        self._app = app
        self._headers = headers | ({"HEAD": headers["GET"]} if "GET" in headers else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        more = self._headers.get(scope["method"], [])

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await self._app(scope, receive, sending)
