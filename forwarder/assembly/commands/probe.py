"""What probes an account's PMS, with the workers' own grants: some PMSs take each refresh token once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forwarder.assembly.backend import Backend
from forwarder.assembly.roles.worker import grants_of
from forwarder.operations.probe import Prober
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy


@asynccontextmanager
async def open_prober(backend: Backend) -> AsyncIterator[Prober]:
    """Its connections are closed in the end."""
    keyring, seconds = backend.keyring, backend.settings.environment.push_timeout_seconds
    grants = None if keyring is None else grants_of(backend, keyring, seconds)
    async with open_directory(backend.clock, policy=PushPolicy(push_seconds=seconds), grants=grants) as pms:
        yield Prober(pms, keyring, backend.clock, backend.audit)
    if grants is not None:
        await grants.finish()
