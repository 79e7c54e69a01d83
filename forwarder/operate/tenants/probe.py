"""Probes an account's PMS: is it reachable, does TLS verify, does it accept the credential, how fast does it respond? Creates
nothing: looks for a reservation with a random reference."""

import asyncio
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal
from urllib.parse import urlsplit

from forwarder.assembly.backend import Backend
from forwarder.assembly.roles.worker import grants_of
from forwarder.oversight.audit import Audit
from forwarder.pms.accounts import connection_of
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy
from forwarder.pms.http.connect import trust_of
from forwarder.pms.port import SEARCH_UNPROVEN, BadOptions, ClientTls, PmsDirectory, UnknownKind
from forwarder.process.clock import Clock
from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Absent, Confirmed, Deferred
from forwarder.tenancy.port import Account, CannotOpen, Unsealer

_CONNECT_SECONDS: Final = 10.0
_PORTS: Final = {"http": 80, "https": 443}
_MEND: Final = {
    "pms_unauthorized": "give it another credential: forwarder account set {id} --credential-file -",
    "pms_scope_too_small": "give it a credential that may read bookings: forwarder account set {id} --credential-file -",
    "pms_credential_invalid": "give it another credential: forwarder account set {id} --credential-file -",
    "pms_throttled": "ask its PMS for more requests, or ask less: forwarder account set {id} --rate N",
    "pms_redirected": "correct its address: forwarder account set {id} --base-url URL --credential-file -",
    "pms_address_invalid": "correct its address: forwarder account set {id} --base-url URL --credential-file -",
}
_NOT_HERE: Final = "run it where the workers' secret is: set FORWARDER_SECRET_KEY, or FORWARDER_SECRET_KEY_FILE"
_OTHERWISE: Final = "ask its PMS; or is --property one that it does not have, or --base-url another service's?"


Ended = Literal["ok", "failed", "not tried"]
OK: Final = "ok"
FAILED: Final = "failed"
NOT_TRIED: Final = "not tried"


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """One check: how it ended, and what to do if it failed."""

    name: str
    ended: Ended
    says: str
    seconds: float | None = None
    mend: str | None = None


class _Asked:
    """Counts the requests sent: an adapter may find out without a request that there is nothing. Implements `Pace`."""

    def __init__(self) -> None:
        self.requests = 0

    def requested(self) -> None:
        self.requests += 1

    def hold_off(self, seconds: float) -> None:
        """Ignored: a probe sends nothing that could wait."""


@dataclass(frozen=True, slots=True)
class Prober:
    """Probes accounts. `unsealer`: opens credentials; None where this process has no secret."""

    pms: PmsDirectory
    unsealer: Unsealer | None
    clock: Clock
    audit: Audit

    async def probe(self, account: Account, property_id: str) -> Sequence[ProbeStep]:
        """Each step, up to the first that fails. `property_id`: where to look, for PMSs that look up by property."""
        async with self.audit.request("account.probe", workspace=account.workspace_id, target=account.id):
            steps = [await self._resolve(account)]
            for step in (self._connect, self._look_up):
                if steps[-1].ended == FAILED:
                    break
                steps.append(await step(account, property_id))
        return steps

    async def _resolve(self, account: Account) -> ProbeStep:
        host = urlsplit(account.base_url).hostname or ""
        began = self.clock.monotonic()
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            return ProbeStep("dns", FAILED, f"{host}: {error.strerror or error}", mend="correct --base-url, or its DNS")
        addresses = ", ".join(sorted({str(each[4][0]) for each in found}))
        return ProbeStep("dns", OK, f"{host} is {addresses}", self._since(began))

    async def _connect(self, account: Account, _property_id: str) -> ProbeStep:
        """Connects separately, and closes the connection at once."""
        parts = urlsplit(account.base_url)
        port, name = parts.port or _PORTS[parts.scheme], "tls" if parts.scheme == "https" else "connection"
        began = self.clock.monotonic()
        try:
            trust = trust_of(ClientTls(account.authorities)) if name == "tls" else None
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=trust)
        except BadOptions as error:
            return ProbeStep(name, FAILED, str(error), mend=f"forwarder account set {account.id} --ca-file FILE")
        except ssl.SSLCertVerificationError as error:
            mend = f"if its authority is one of your own: forwarder account set {account.id} --ca-file FILE"
            return ProbeStep(name, FAILED, f"its certificate is not trusted: {error.verify_message}", mend=mend)
        except OSError as error:  # includes TimeoutError and SSLError
            says = f"no answer at {parts.hostname}:{port}: {error.strerror or type(error).__name__}"
            return ProbeStep(name, FAILED, says, mend="is the PMS up, is the port right, does a firewall let us out?")
        took = self._since(began)
        secured = writer.get_extra_info("ssl_object")
        writer.close()
        return ProbeStep(name, OK, "connected" if secured is None else f"connected by {secured.version()}", took)

    async def _look_up(self, account: Account, property_id: str) -> ProbeStep:
        name, own = "look-up", f"forwarder account set {account.id}"
        if self.unsealer is None:
            says = "not tried: this process has no FORWARDER_SECRET_KEY to open the credential with"
            return ProbeStep(name, FAILED, says, mend=_NOT_HERE)
        asked = _Asked()
        try:
            pms = self.pms.connect(connection_of(account, self.unsealer, asked))
        except CannotOpen as error:
            return ProbeStep(
                name, FAILED, f"the credential cannot be opened: {error}", mend=f"{own} --credential-file -"
            )
        except (BadOptions, UnknownKind) as error:
            return ProbeStep(name, FAILED, str(error), mend=f"{own} --option NAME=VALUE")
        if not pms.capabilities.find_by_reference:
            return ProbeStep(
                name, NOT_TRIED, "not tried: a PMS of this kind cannot look for a reservation by our reference"
            )
        began = self.clock.monotonic()
        outcome = await pms.find(self._probe_booking(property_id))
        took = self._since(began)
        if isinstance(outcome, Absent) and not asked.requests:
            return ProbeStep(
                name, NOT_TRIED, "not tried: by its address and options there is nothing to ask its PMS for"
            )
        unproven = isinstance(outcome, Deferred) and outcome.reason == SEARCH_UNPROVEN
        if isinstance(outcome, Absent) or unproven:
            return ProbeStep(name, OK, "it accepts the credential, and has no such reservation, as it should", took)
        if isinstance(outcome, Confirmed):
            return ProbeStep(name, FAILED, "it found a reservation under a random reference", took, _OTHERWISE)
        mend = _MEND.get(outcome.reason, _OTHERWISE).format(id=account.id)
        return ProbeStep(name, FAILED, f"{outcome.reason}: {outcome.detail}", took, mend)

    def _probe_booking(self, property_id: str) -> Booking:
        arrival = self.clock.now().date() + timedelta(days=1)
        fields = {
            "propertyId": property_id,
            "roomId": property_id,
            "arrivalDate": arrival.isoformat(),
            "departureDate": (arrival + timedelta(days=1)).isoformat(),
            "guest": {},
        }
        return Booking(f"probe_{secrets.token_hex(12)}", fields)

    def _since(self, began: float) -> float:
        return self.clock.monotonic() - began


@asynccontextmanager
async def open_prober(backend: Backend) -> AsyncIterator[Prober]:
    """Probes accounts' PMSs. Closes its connections at the end."""
    async with open_pms(backend) as pms:
        yield Prober(pms, backend.keyring, backend.clock, backend.audit)


@asynccontextmanager
async def open_pms(backend: Backend) -> AsyncIterator[PmsDirectory]:
    """PMSs for operators, with the workers' own grants: some PMSs accept each refresh token only once."""
    keyring, environment = backend.keyring, backend.settings.environment
    seconds = environment.push_timeout_seconds
    grants = None if keyring is None else grants_of(backend, keyring, seconds)
    policy, plaintext = PushPolicy(push_seconds=seconds), environment.plaintext_to_pms
    async with open_directory(backend.clock, policy=policy, grants=grants, plaintext=plaintext) as pms:
        yield pms
    if grants is not None:
        await grants.finish()
