"""The built-in kinds of PMS, and every kind over one transport. `assembly` opens it; the worker sees a `PmsDirectory`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any, Final

import httpx
import structlog
from pydantic import ValidationError

from forwarder.pms.adapter import AdapterKind, ConnectedPms
from forwarder.pms.beds24.adapter import Beds24Adapter
from forwarder.pms.booking_sync.adapter import BookingSyncAdapter
from forwarder.pms.cloudbeds.adapter import CLOUDBEDS
from forwarder.pms.generic_kind import GENERIC
from forwarder.pms.grants import GrantKeeper
from forwarder.pms.hostaway.adapter import HostawayAdapter
from forwarder.pms.port import BadOptions, Connection, Limits, Pms, PmsDirectory, UnknownKind
from forwarder.pms.registry import Registry, load_registry
from forwarder.pms.transport import Connections, RustTransport
from forwarder.pms.website_builder import WebsiteBuilderAdapter
from forwarder.pms.wire import Patience, Wire
from forwarder.runtime.clock import Clock

KINDS: Final[Mapping[str, AdapterKind]] = {
    "beds24": Beds24Adapter,
    "booking-sync": BookingSyncAdapter,
    "cloudbeds": CLOUDBEDS,
    "generic": GENERIC,
    "hostaway": HostawayAdapter,
    "website-builder": WebsiteBuilderAdapter,
}


_log = structlog.get_logger(__name__)


class Directory:
    """Every kind of `registry`."""

    def __init__(self, wire: Wire, clock: Clock, registry: Registry, grants: GrantKeeper | None = None) -> None:
        self._wire = wire
        self._clock = clock
        self._registry = registry
        self._grants = grants

    def kinds(self) -> Sequence[str]:
        return sorted(self._registry.kinds)

    def limits(self, kind: str) -> Limits:
        known = self._registry.kinds.get(kind)
        return Limits() if known is None else known.limits

    def connect(self, connection: Connection) -> Pms:
        check_options(connection.kind, connection.options, self._registry)
        adapter = self._registry.kinds[connection.kind]
        if self._grants is not None:
            connection = replace(connection, grants=self._grants.under(connection.credential))
        return ConnectedPms(adapter(connection, self._clock), self._wire, connection.pace)


@cache
def registered() -> Registry:
    """The kinds of this process: `KINDS`, and those that other distributions bring; looked for once. What could not be loaded is
    logged."""
    registry = load_registry(KINDS)
    for fault in registry.not_loaded:
        _log.error("adapter.not_loaded", kind=fault.kind, distribution=fault.distribution, error=fault.error)
    return registry


def check_options(kind: str, options: Mapping[str, Any], registry: Registry | None = None) -> None:
    """Raises `UnknownKind`, and `BadOptions` where an account of that kind cannot have these."""
    there_are = registry or registered()
    if kind not in there_are.kinds:
        raise UnknownKind(there_are.missing(kind))
    try:
        there_are.kinds[kind].options.model_validate(options)
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
    registry: Registry | None = None,
    grants: GrantKeeper | None = None,
) -> AsyncIterator[PmsDirectory]:
    """The directory; its connections are closed in the end. `grants`: where those of accounts are kept, instead of in their
    connection. `transport` stands in for the network, and `registry` for the kinds of this process, in tests."""
    async with transport or RustTransport(connections or Connections()) as opened:
        yield Directory(Wire(opened, clock, patience or Patience()), clock, registry or registered(), grants)
