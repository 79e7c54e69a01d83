"""The kinds of PMS that there are, over one transport. `assembly` opens it; the worker sees a `PmsDirectory`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import httpx

from forwarder.pms.adapter import AdapterKind, ConnectedPms
from forwarder.pms.booking_sync import BookingSyncAdapter
from forwarder.pms.generic import GenericAdapter
from forwarder.pms.port import Connection, Limits, Pms, PmsDirectory, UnknownKind
from forwarder.pms.transport import Connections, RustTransport
from forwarder.pms.website_builder import WebsiteBuilderAdapter
from forwarder.pms.wire import Patience, Wire
from forwarder.runtime.clock import Clock

KINDS: Final[Mapping[str, AdapterKind]] = {
    "booking-sync": BookingSyncAdapter,
    "generic": GenericAdapter,
    "website-builder": WebsiteBuilderAdapter,
}


class Directory:
    """Every kind of `KINDS`."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    def kinds(self) -> Sequence[str]:
        return sorted(KINDS)

    def limits(self, kind: str) -> Limits:
        return KINDS[kind].limits if kind in KINDS else Limits()

    def connect(self, connection: Connection) -> Pms:
        adapter = KINDS.get(connection.kind)
        if adapter is None:
            raise UnknownKind(f"There is no PMS kind {connection.kind!r}; there are {', '.join(self.kinds())}.")
        return ConnectedPms(adapter(connection, self._clock), self._wire, connection.pace)


@asynccontextmanager
async def open_directory(
    clock: Clock,
    *,
    patience: Patience | None = None,
    connections: Connections | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[PmsDirectory]:
    """The directory; its connections are closed in the end. `transport` stands in for the network, in tests."""
    async with transport or RustTransport(connections or Connections()) as opened:
        yield Directory(Wire(opened, clock, patience or Patience()), clock)
