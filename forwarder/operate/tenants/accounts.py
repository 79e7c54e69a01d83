"""Adding, changing and probing integration accounts: validated for their kind of PMS, with sealed credentials. The command line and
the console both parse an account's terms here. To pause or resume an account, `TenancyAdmin` is enough."""

import asyncio
import math
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, TypedDict, Unpack
from urllib.parse import urlsplit

from forwarder.assembly.backend import Backend
from forwarder.assembly.worker import grants_of
from forwarder.oversight.audit import Audit
from forwarder.pms.accounts import Plaintext, connection_of, is_encrypted, traits_of
from forwarder.pms.auth import credential_digest
from forwarder.pms.directory import open_directory
from forwarder.pms.http.client import PushPolicy
from forwarder.pms.http.connections import trust_of
from forwarder.pms.port import SEARCH_UNPROVEN, SYSTEM_TLS, BadOptions, ClientTls, PmsDirectory, UnknownKind
from forwarder.pms.registry import check_options
from forwarder.process.clock import Clock, SystemClock
from forwarder.reservation.booking import Booking
from forwarder.reservation.checks.fields import CHECKS
from forwarder.reservation.outcome import Absent, Confirmed, Deferred
from forwarder.tenancy.port import SIMILAR, Account, CannotOpen, NotKnown, Sealer, Similar, Unsealer
from forwarder.tenancy.sealing import of_client_key, of_credential, with_credential
from forwarder.tenancy.sql.admin import TenancyAdmin

PUBLISHED: Final = "published"  # in place of a rate: the published limit of the account's kind of PMS


class BadTerm(ValueError):
    """An invalid term. The message says what is valid, and reads as a continuation of the term's name."""


class NotEncrypted(ValueError):
    """The account would send data to its PMS on another machine over plain http."""

    def __init__(self, *, cards: bool) -> None:
        what, setting = ("Cards", "CARDS") if cards else ("The credential and reservations", "PMS")
        super().__init__(
            f"{what} would be sent by plain http: the base URL and every address among the options must be https, or of this "
            f"machine; or set FORWARDER_ALLOW_PLAINTEXT_{setting}=true where the network between is private."
        )


class AccountSettings(TypedDict, total=False):
    """The fields of an `Account` that may change, other than its credential, options and TLS."""

    base_url: str
    concurrency: int
    rate_per_second: float | None
    deadline_seconds: int
    duplicate_window_seconds: int
    similar: Similar
    skipped_checks: tuple[str, ...]
    settles_seconds: float | None


def accounts_of(backend: Backend) -> "Accounts":
    async def hasten(account_id: str) -> int:
        # Workers may know an account for ten seconds as it was before a change.
        return await backend.repairs.hasten(account_id, at=backend.clock.now() + timedelta(seconds=10))

    plaintext = backend.settings.environment.plaintext_to_pms
    return Accounts(backend.tenancy, backend.sealer, plaintext, hasten, backend.clock)


async def account_of(tenancy: TenancyAdmin, account_id: str) -> Account:
    """The account. Raises `NotKnown`."""
    for account in await tenancy.accounts():
        if account.id == account_id:
            return account
    raise NotKnown(f"There is no account {account_id!r}.")


@dataclass(frozen=True, slots=True)
class Accounts:
    """Adds and changes the accounts of `tenancy`. `sealer` fetches the key to seal credentials with. `plaintext`: which data may
    go to other machines over plain http. `hasten` makes an account's waiting submissions due once workers know a change."""

    tenancy: TenancyAdmin
    sealer: Callable[[], Awaitable[Sealer]]
    plaintext: Plaintext = Plaintext.NOTHING
    hasten: Callable[[str], Awaitable[int]] | None = None
    clock: Clock = field(default_factory=SystemClock)

    async def add(self, account: Account, credential: str, tls: ClientTls = SYSTEM_TLS) -> None:
        """Raises `UnknownKind`, `BadOptions`, `NotEncrypted`, `AlreadyExists`, `NotKnown`."""
        self._check(account)
        sealed = with_credential(await self._with_tls(account, tls), credential, await self.sealer())
        await self.tenancy.put_account(sealed)

    async def change(
        self,
        account_id: str,
        *,
        credential: str | None,
        options: Mapping[str, Any],
        all_options: bool,
        tls: ClientTls | None = None,
        same_pms: bool = False,
        **settings: Unpack[AccountSettings],
    ) -> Account:
        """Changes and returns the account. `options` replaces all of its options, or only those that it names; None removes
        one. `tls` replaces all of its TLS material. `same_pms`: it is still the same account of the same PMS, where earlier pushes
        can be looked up; a new address or credential without it ends what was confirmed so before. Grants obtained with an old
        credential are deleted. After a new address, credential or TLS, waiting submissions are tried at once. Raises `BadOptions`,
        `ChangedMeanwhile`, `NotEncrypted`, `NotKnown`."""
        account = await account_of(self.tenancy, account_id)
        wanted = dict(options) if all_options else {**account.options, **options}
        kept = {name: value for name, value in wanted.items() if value is not None}
        changed = replace(account, options=kept, **settings)
        if same_pms:
            # Until they know of a change, workers push with the old address and credential: for some seconds after its commit,
            # which may wait for a standby. Generous, as it vouches for no other PMS: a change without `same_pms` ends it.
            changed = replace(changed, same_pms_before=self.clock.now() + timedelta(hours=1))
        elif credential is not None or changed.base_url != account.base_url:
            changed = replace(changed, same_pms_before=None)
        self._check(changed)
        if tls is not None:
            changed = await self._with_tls(changed, tls)
        if credential is None and of_credential(changed) != of_credential(account):
            raise BadOptions("The credential is sealed for its present address: with another address, give it again.")
        if credential is not None:
            changed = with_credential(changed, credential, await self.sealer())
        await self.tenancy.change_account(account, changed)
        if credential is not None:
            await self.tenancy.forget_grants(account_id, but=credential_digest(credential))
        if self.hasten is not None and (credential, tls, changed.base_url) != (None, None, account.base_url):
            await self.hasten(account_id)
        return changed

    def _check(self, account: Account) -> None:
        check_options(account.kind, account.options)
        cards = traits_of(account.kind).cards != "none"
        needed = Plaintext.EVERYTHING if cards else Plaintext.ALL_BUT_CARDS
        if self.plaintext < needed and not is_encrypted(account.base_url, account.options):
            raise NotEncrypted(cards=cards)

    async def _with_tls(self, account: Account, tls: ClientTls) -> Account:
        trust_of(tls)  # or `BadOptions`
        key = None if tls.key is None else (await self.sealer()).seal_text(tls.key, of_client_key(account.id))
        return replace(account, authorities=tls.authorities, client_certificate=tls.certificate, client_key=key)


def base_url_of(text: str) -> str:
    """The base URL of the PMS's API. Raises `BadTerm`."""
    if not text.startswith(("http://", "https://")):
        raise BadTerm(f"must begin with http:// or https://; it is {text!r}.")
    return text.rstrip("/")


def rate_of(text: str) -> float | None:
    """Requests per second; None for the published limit of its kind. Raises `BadTerm`."""
    if text == PUBLISHED:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < math.inf:
        raise BadTerm(f"must be a number that is more than 0, or {PUBLISHED} for the kind's published limit.")
    return rate


def similar_of(text: str) -> Similar:
    """The rule for similar submissions. Raises `BadTerm`."""
    for rule in SIMILAR:
        if text == rule:
            return rule
    raise BadTerm(f"must be one of {', '.join(SIMILAR)}; it is {text!r}.")


def checks_of(names: str) -> tuple[str, ...]:
    """The checks to leave out, from a comma-separated list. Raises `BadTerm`."""
    if names in {"none", "all"}:
        return CHECKS if names == "all" else ()
    given = [name.strip() for name in names.split(",")]
    if wrong := [name for name in given if name not in CHECKS]:
        known = f"there are: {', '.join(CHECKS)}; or say all, or none"
        raise BadTerm(f"must name checks, and there is no check {wrong[0]!r}; {known}.")
    return tuple(check for check in CHECKS if check in given)


# --- probing: is its PMS reachable, does TLS verify, does it accept the credential, how fast does it respond? ---

_OTHER_CREDENTIAL: Final = "give it another credential: forwarder account set {id} --credential-file -"
_OTHER_ADDRESS: Final = "correct its address: forwarder account set {id} --base-url URL --credential-file -"
_MEND: Final = {
    "pms_unauthorized": _OTHER_CREDENTIAL,
    "pms_scope_too_small": "give it a credential that may read bookings: forwarder account set {id} --credential-file -",
    "pms_credential_invalid": _OTHER_CREDENTIAL,
    "pms_throttled": "ask its PMS for more requests, or ask less: forwarder account set {id} --rate N",
    "pms_redirected": _OTHER_ADDRESS,
    "pms_address_invalid": _OTHER_ADDRESS,
}
_OTHERWISE: Final = "ask its PMS; or is --property one that it does not have, or --base-url another service's?"


@dataclass(frozen=True, slots=True)
class ProbeStep:
    name: str
    ended: Literal["ok", "failed", "not tried"]
    says: str
    seconds: float | None = None
    mend: str | None = None


class _Asked:
    """Counts the requests sent: an adapter may find out without a request that there is nothing. Implements `Pace`."""

    requests = 0

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
        steps: list[ProbeStep] = []
        async with self.audit.request("account.probe", workspace=account.workspace_id, target=account.id):
            for step in (self._resolve, self._connect, partial(self._look_up, property_id)):
                steps.append(await step(account))
                if steps[-1].ended == "failed":
                    break
        return steps

    async def _resolve(self, account: Account) -> ProbeStep:
        host, began = urlsplit(account.base_url).hostname or "", self.clock.monotonic()
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            return ProbeStep(
                "dns", "failed", f"{host}: {error.strerror or error}", mend="correct --base-url, or its DNS"
            )
        addresses = ", ".join(sorted({str(each[4][0]) for each in found}))
        return ProbeStep("dns", "ok", f"{host} is {addresses}", self.clock.monotonic() - began)

    async def _connect(self, account: Account) -> ProbeStep:
        """Connects separately, and closes the connection at once."""
        parts, began = urlsplit(account.base_url), self.clock.monotonic()
        port, name = parts.port or 443, "tls"
        if parts.scheme == "http":
            port, name = parts.port or 80, "connection"
        try:
            trust = trust_of(ClientTls(account.authorities)) if name == "tls" else None
            async with asyncio.timeout(10.0):
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=trust)
        except BadOptions as error:
            return ProbeStep(name, "failed", str(error), mend=f"forwarder account set {account.id} --ca-file FILE")
        except ssl.SSLCertVerificationError as error:
            mend = f"if its authority is one of your own: forwarder account set {account.id} --ca-file FILE"
            return ProbeStep(name, "failed", f"its certificate is not trusted: {error.verify_message}", mend=mend)
        except OSError as error:  # includes TimeoutError and SSLError
            says = f"no answer at {parts.hostname}:{port}: {error.strerror or type(error).__name__}"
            return ProbeStep(name, "failed", says, mend="is the PMS up, is the port right, does a firewall let us out?")
        took, secured = self.clock.monotonic() - began, writer.get_extra_info("ssl_object")
        writer.close()
        return ProbeStep(name, "ok", "connected" if secured is None else f"connected by {secured.version()}", took)

    async def _look_up(self, property_id: str, account: Account) -> ProbeStep:
        name, own = "look-up", f"forwarder account set {account.id}"
        if self.unsealer is None:
            says = "not tried: this process has no FORWARDER_SECRET_KEY to open the credential with"
            mend = "run it where the workers' secret is: set FORWARDER_SECRET_KEY, or FORWARDER_SECRET_KEY_FILE"
            return ProbeStep(name, "failed", says, mend=mend)
        asked = _Asked()
        try:
            pms = self.pms.connect(connection_of(account, self.unsealer, asked))
        except CannotOpen as error:
            says = f"the credential cannot be opened: {error}"
            return ProbeStep(name, "failed", says, mend=f"{own} --credential-file -")
        except (BadOptions, UnknownKind) as error:
            return ProbeStep(name, "failed", str(error), mend=f"{own} --option NAME=VALUE")
        if not pms.capabilities.find_by_reference:
            says = "not tried: a PMS of this kind cannot look for a reservation by our reference"
            return ProbeStep(name, "not tried", says)
        began = self.clock.monotonic()
        arrival = self.clock.now().date() + timedelta(days=1)
        fields: dict[str, Any] = {"propertyId": property_id, "roomId": property_id, "guest": {}}
        fields |= {"arrivalDate": f"{arrival}", "departureDate": f"{arrival + timedelta(days=1)}"}
        outcome = await pms.find(Booking(f"probe_{secrets.token_hex(12)}", fields))
        took = self.clock.monotonic() - began
        if isinstance(outcome, Absent) and not asked.requests:
            return ProbeStep(name, "not tried", "not tried: its address and options allow no request to its PMS")
        unproven = isinstance(outcome, Deferred) and outcome.reason == SEARCH_UNPROVEN
        if isinstance(outcome, Absent) or unproven:
            return ProbeStep(name, "ok", "it accepts the credential, and has no such reservation, as it should", took)
        if isinstance(outcome, Confirmed):
            return ProbeStep(name, "failed", "it found a reservation under a random reference", took, _OTHERWISE)
        mend = _MEND.get(outcome.reason, _OTHERWISE).format(id=account.id)
        return ProbeStep(name, "failed", f"{outcome.reason}: {outcome.detail}", took, mend)


async def probe(backend: Backend, account: Account, property_id: str) -> Sequence[ProbeStep]:
    async with open_pms(backend) as pms:
        return await Prober(pms, backend.keyring, backend.clock, backend.audit).probe(account, property_id)


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
