"""Builds the operators' access to PMSs, with the workers' own grants: some PMSs accept each refresh token only once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forwarder.assembly.backend import Backend
from forwarder.assembly.roles.worker import grants_of
from forwarder.operations.look_up import LookUps
from forwarder.operations.probe import Prober
from forwarder.operations.repair.doubles import Doubles
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy
from forwarder.pms.port import PmsDirectory
from forwarder.store.submissions.repairs import Repairs


@asynccontextmanager
async def open_prober(backend: Backend) -> AsyncIterator[Prober]:
    """Probes accounts' PMSs. Closes its connections at the end."""
    async with _open_pms(backend) as pms:
        yield Prober(pms, backend.keyring, backend.clock, backend.audit)


@asynccontextmanager
async def open_look_ups(backend: Backend) -> AsyncIterator[LookUps]:
    """Looks submissions up in their PMSs. Closes its connections at the end."""
    async with _open_pms(backend) as pms:
        key = (await backend.request_ids()).mac_key
        yield LookUps(pms, backend.keyring, backend.overview, backend.pushing_directory(), backend.audit, key)


@asynccontextmanager
async def open_doubles(backend: Backend) -> AsyncIterator[Doubles]:
    """Cancels doubles in their PMSs. Closes its connections at the end."""
    async with _open_pms(backend) as pms:
        repairs, accounts = Repairs(backend.engine), backend.pushing_directory()
        key = (await backend.request_ids()).mac_key
        yield Doubles(pms, backend.keyring, backend.overview, repairs, accounts, backend.audit, key)


@asynccontextmanager
async def _open_pms(backend: Backend) -> AsyncIterator[PmsDirectory]:
    keyring, environment = backend.keyring, backend.settings.environment
    seconds = environment.push_timeout_seconds
    grants = None if keyring is None else grants_of(backend, keyring, seconds)
    policy, plaintext = PushPolicy(push_seconds=seconds), environment.plaintext_to_pms
    async with open_directory(backend.clock, policy=policy, grants=grants, plaintext=plaintext) as pms:
        yield pms
    if grants is not None:
        await grants.finish()
