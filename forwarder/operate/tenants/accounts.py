"""Adding and changing integration accounts: validated for their kind of PMS, with sealed credentials. The command line and the
console both parse an account's terms here. To pause or resume an account, `TenancyAdmin` is enough."""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict, Unpack

from forwarder.assembly.backend import Backend
from forwarder.pms.auth.shared_grants import credential_digest
from forwarder.pms.built_in import traits_of
from forwarder.pms.encryption import Plaintext, is_encrypted
from forwarder.pms.http.connect import trust_of
from forwarder.pms.port import SYSTEM_TLS, BadOptions, ClientTls
from forwarder.pms.registry import check_options
from forwarder.reservation.checks.plausibility import CHECKS
from forwarder.tenancy.port import SIMILAR, Account, NotKnown, Sealer, Similar, TenancyAdmin
from forwarder.tenancy.sealing import of_client_key, of_credential, with_credential

_KNOWN_WITHIN: Final = timedelta(seconds=10)
"""How long workers may know an account as it was before a change."""

PUBLISHED: Final = "published"
"""In place of a rate: the published limit of the account's kind of PMS."""


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
    same_pms_before: datetime | None


def accounts_of(backend: Backend) -> "Accounts":
    """The accounts of an open deployment."""

    async def hasten(account_id: str) -> int:
        return await backend.repairs.hasten(account_id, at=backend.clock.now() + _KNOWN_WITHIN)

    plaintext = backend.settings.environment.plaintext_to_pms
    return Accounts(backend.tenancy, backend.sealer, plaintext=plaintext, hasten=hasten)


async def account_of(tenancy: TenancyAdmin, account_id: str) -> Account:
    """The account. Raises `NotKnown`."""
    account = next((known for known in await tenancy.accounts() if known.id == account_id), None)
    if account is None:
        raise NotKnown(f"There is no account {account_id!r}.")
    return account


class Accounts:
    """Adds and changes the accounts of `tenancy`. `sealer` fetches the key to seal credentials with. `plaintext`: which data may
    go to other machines over plain http. `hasten` makes an account's waiting submissions due once workers know a change."""

    def __init__(
        self,
        tenancy: TenancyAdmin,
        sealer: Callable[[], Awaitable[Sealer]],
        *,
        plaintext: Plaintext = Plaintext.NOTHING,
        hasten: Callable[[str], Awaitable[int]] | None = None,
    ) -> None:
        self._tenancy = tenancy
        self._sealer = sealer
        self._plaintext = plaintext
        self._hasten = hasten

    async def add(self, account: Account, credential: str, tls: ClientTls = SYSTEM_TLS) -> None:
        """Adds `account` with this credential and its own TLS material. Raises `UnknownKind`, `BadOptions`, `NotEncrypted`,
        `AlreadyExists`, `NotKnown`."""
        self._check(account)
        account = await self._with_tls(account, tls)
        await self._tenancy.put_account(await self._with_credential(account, credential))

    async def change(
        self,
        account_id: str,
        *,
        credential: str | None,
        options: Mapping[str, Any],
        all_options: bool,
        tls: ClientTls | None = None,
        **settings: Unpack[AccountSettings],
    ) -> Account:
        """Changes and returns the account. `options` replaces all of its options, or only those that it names; None removes
        one. `tls` replaces all of its TLS material. Grants obtained with an old credential are deleted. After a new address,
        credential or TLS, waiting submissions are tried at once. Raises `BadOptions`, `NotEncrypted`, `NotKnown`."""
        account = await account_of(self._tenancy, account_id)
        wanted = dict(options) if all_options else {**account.options, **options}
        kept = {name: value for name, value in wanted.items() if value is not None}
        changed = replace(account, options=kept, **settings)
        self._check(changed)
        if tls is not None:
            changed = await self._with_tls(changed, tls)
        if credential is None and of_credential(changed) != of_credential(account):
            raise BadOptions(
                "That sends the credential elsewhere, and it is sealed for where it goes now: give it again."
            )
        if credential is not None:
            changed = await self._with_credential(changed, credential)
        await self._tenancy.put_account(changed, replace=True)
        if credential is not None:
            await self._tenancy.forget_grants(account_id, but=credential_digest(credential))
        if self._hasten is not None and (credential, tls, changed.base_url) != (None, None, account.base_url):
            await self._hasten(account_id)
        return changed

    def _check(self, account: Account) -> None:
        check_options(account.kind, account.options)
        cards = traits_of(account.kind).cards != "none"
        needed = Plaintext.EVERYTHING if cards else Plaintext.ALL_BUT_CARDS
        if self._plaintext < needed and not is_encrypted(account.base_url, account.options):
            raise NotEncrypted(cards=cards)

    async def _with_tls(self, account: Account, tls: ClientTls) -> Account:
        trust_of(tls)  # or `BadOptions`
        key = None if tls.key is None else (await self._sealer()).seal_text(tls.key, of_client_key(account.id))
        return replace(account, authorities=tls.authorities, client_certificate=tls.certificate, client_key=key)

    async def _with_credential(self, account: Account, credential: str) -> Account:
        return with_credential(account, credential, await self._sealer())


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
    for each in SIMILAR:
        if text == each:
            return each
    raise BadTerm(f"must be one of {', '.join(SIMILAR)}; it is {text!r}.")


def checks_of(names: str) -> tuple[str, ...]:
    """The checks to leave out, from a comma-separated list. Raises `BadTerm`."""
    if names == "none":
        return ()
    if names == "all":
        return CHECKS
    given = [name.strip() for name in names.split(",")]
    wrong = [name for name in given if name not in CHECKS]
    if wrong:
        raise BadTerm(
            f"must name checks, and there is no check {wrong[0]!r}; there are: {', '.join(CHECKS)}; or say all, or none."
        )
    return tuple(check for check in CHECKS if check in given)
