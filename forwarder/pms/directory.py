"""The kinds of PMS that there are, over one transport. `assembly` opens it; the worker sees a `PmsDirectory`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
from pydantic import ValidationError

from forwarder.pms.adapter import AdapterKind, ConnectedPms
from forwarder.pms.booking_sync import BookingSyncAdapter
from forwarder.pms.generic import GenericAdapter
from forwarder.pms.port import BadOptions, Connection, Limits, Pms, PmsDirectory, UnknownKind
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
        check_options(connection.kind, connection.options)
        adapter = KINDS[connection.kind]
        return ConnectedPms(adapter(connection, self._clock), self._wire, connection.pace)


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raises `UnknownKind`, and `BadOptions` where an account of that kind cannot have these."""
    if kind not in KINDS:
        raise UnknownKind(f"There is no PMS kind {kind!r}; there are {', '.join(sorted(KINDS))}.")
    try:
        KINDS[kind].options.model_validate(options)
    except ValidationError as error:
        raise BadOptions("; ".join(_in_words(error))) from None


def _in_words(error: ValidationError) -> Sequence[str]:
    # Without the input: an option may be a secret that was put in the wrong place.
    details = error.errors(include_input=False, include_url=False)
    return [f"{'.'.join(map(str, detail['loc'])) or 'options'}: {detail['msg']}" for detail in details]


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
