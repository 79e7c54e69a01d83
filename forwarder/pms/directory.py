"""Every kind of PMS over one transport. `assembly` opens it; the worker sees a `PmsDirectory`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx

from forwarder.pms.adapter import ConnectedPms
from forwarder.pms.auth.grants import GrantKeeper
from forwarder.pms.http.client import PmsClient, PushPolicy
from forwarder.pms.http.transport import HttpTransport, PoolLimits
from forwarder.pms.options import check_options, registered
from forwarder.pms.port import AccountConnection, Limits, Pms, PmsDirectory
from forwarder.pms.registry import Registry
from forwarder.process.clock import Clock


class Directory:
    """Every kind of `registry`."""

    def __init__(self, wire: PmsClient, clock: Clock, registry: Registry, grants: GrantKeeper | None = None) -> None:
        self._wire = wire
        self._clock = clock
        self._registry = registry
        self._grants = grants

    def kinds(self) -> Sequence[str]:
        return sorted(self._registry.kinds)

    def limits(self, kind: str) -> Limits:
        known = self._registry.kinds.get(kind)
        return Limits() if known is None else known.limits

    def connect(self, connection: AccountConnection) -> Pms:
        check_options(connection.kind, connection.options, self._registry)
        adapter = self._registry.kinds[connection.kind]
        if self._grants is not None:
            connection = replace(connection, grants=self._grants.under(connection.credential))
        return ConnectedPms(adapter(connection, self._clock), self._wire, connection.pace)


@asynccontextmanager
async def open_directory(
    clock: Clock,
    *,
    policy: PushPolicy | None = None,
    connections: PoolLimits | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    registry: Registry | None = None,
    grants: GrantKeeper | None = None,
) -> AsyncIterator[PmsDirectory]:
    """The directory; its connections are closed in the end. `grants`: where those of accounts are kept, instead of in their
    connection. `transport` stands in for the network, and `registry` for the kinds of this process, in tests."""
    async with transport or HttpTransport(connections or PoolLimits()) as opened:
        yield Directory(PmsClient(opened, clock, policy or PushPolicy()), clock, registry or registered(), grants)
