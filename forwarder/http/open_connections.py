"""The open connections of all servers of this process, by the addresses of the server and the client."""

import asyncio
from typing import Final

from starlette.types import Scope

OPEN: Final[dict[tuple[object, object], asyncio.Transport]] = {}
"""Kept by the server."""


def connection_of(scope: Scope) -> asyncio.Transport | None:
    """The connection of a request; None if it is not open in this process."""
    server, client = scope.get("server"), scope.get("client")
    return OPEN.get((server, client)) if client else None
