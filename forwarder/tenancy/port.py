"""Workspaces, API keys, integration accounts, webhook endpoints and sealing, for stages and operators' commands. Pure.

An API key's token ends in a MAC by a key that the processes of a deployment share. So guesses are recognized without a look-up, and
a flood of them never reaches the database. The MAC grants nothing: only a token whose hash is stored does."""

import base64
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, get_args

from forwarder.reservation.submission import DEFAULT_WINDOW_SECONDS, is_test, live_account_id

Scope: TypeAlias = Literal["submit", "read", "cancel", "webhooks", "operate"]
Scopes: TypeAlias = frozenset[Scope]
Network: TypeAlias = IPv4Network | IPv6Network
SCOPES: Final[Sequence[Scope]] = get_args(Scope)
ALL_SCOPES: Final[Scopes] = frozenset(SCOPES)
DEFAULT_SCOPES: Final[Scopes] = frozenset({"submit", "read", "cancel"})  # those of a booking engine


def read_scopes(words: Iterable[str]) -> Scopes:
    """The scopes that are named, several in one word with commas between. Raises `ValueError` with what would be right."""
    named = frozenset(name for word in words for name in word.split(",") if name)
    known = frozenset(scope for scope in SCOPES if scope in named)
    if (unknown := sorted(named - known)) or not known:
        what = f"{unknown[0]!r} is no scope" if unknown else "a key needs a scope"
        raise ValueError(f"{what}: name one or several of {', '.join(SCOPES)}.")
    return known


def write_scopes(scopes: Scopes) -> str:
    """The scopes in a fixed order, separated by spaces, as stored and shown."""
    return " ".join(scope for scope in SCOPES if scope in scopes)


def read_expiry(text: str, now: datetime) -> datetime | None:
    """The moment that `90d`, a day (it ends in UTC) or a moment means, None for `never`. Raises `ValueError` with examples."""
    if text == "never":
        return None
    try:
        if days := re.fullmatch(r"([1-9][0-9]{0,4})d", text):
            expires_at = now + timedelta(days=int(days[1]))
        elif re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            expires_at = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1)
        elif (moment := datetime.fromisoformat(text)).tzinfo is None:
            raise ValueError("no offset")  # noqa: TRY301 - worded below like the others
        else:
            expires_at = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no expiry: write 90d for days from now, a day as 2031-12-31, a moment with its offset as "
            "2031-12-31T12:00:00Z, or never."
        ) from None
    if expires_at <= now:
        raise ValueError(f"{text!r} is past: the key would never work. To end a key now, revoke it.")
    return expires_at


def read_networks(words: Iterable[str]) -> tuple[Network, ...]:
    """The networks that are named, several in one word with commas between; none for `any`. Raises `ValueError` with an example."""
    named = [name for word in words for name in word.split(",") if name]
    if named == ["any"]:
        return ()
    try:
        return tuple(dict.fromkeys(ip_network(name) for name in named))
    except ValueError as error:
        raise ValueError(
            f"{error}. Write an address or a network in CIDR notation, such as 203.0.113.0/24 or 2001:db8::/32, or any."
        ) from None


_TEST_PREFIX: Final = "fwd_test_"
_MAC_LENGTH: Final = 12  # of 9 bytes in base64


def new_token(mac_key: bytes, *, test: bool = False) -> str:
    """A token with 32 random bytes, and the prefix of a live or test key, so that leaked tokens are easy to recognize."""
    head = (_TEST_PREFIX if test else "fwd_live_") + secrets.token_urlsafe(32)
    return head + _mac(mac_key, head)


def may_be_ours(mac_key: bytes, token: str) -> bool:
    """Whether this deployment may have made the token. If not, the token is unknown without a look-up."""
    head, mac = token[:-_MAC_LENGTH], token[-_MAC_LENGTH:]
    return hmac.compare_digest(mac.encode(), _mac(mac_key, head).encode())


def is_test_token(token: str) -> bool:
    """Whether it has a test key's prefix. Trustworthy once its hash, which covers the prefix, is known."""
    return token.startswith(_TEST_PREFIX)


def token_hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _mac(mac_key: bytes, head: str) -> str:
    return base64.urlsafe_b64encode(hmac.digest(mac_key, head.encode(), "sha256")[:9]).decode()


DEFAULT_DEADLINE_SECONDS: Final = 24 * 60 * 60


class TenancyUnavailable(Exception):
    """The database is unavailable, and nothing usable is cached."""


class AlreadyExists(ValueError):
    """The identifier is taken. The message names it."""


class NotKnown(LookupError):
    """No such workspace, key or account. The message names it."""


class InUse(Exception):
    """It cannot be removed while something belongs to it. The message says what."""


class ChangedMeanwhile(Exception):
    """Another operator has changed the same since it was read. Nothing was changed. The message says what to do."""


class CannotOpen(ValueError):
    """It was sealed with a key that is not ours, or is damaged."""


class NotBound(CannotOpen):
    """It was sealed for something else and moved here, so it must not be used."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests}/{self.seconds}s"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that was not revoked. `test`: its callers use the shadows of accounts. `limit`: None for the deployment's default.
    `expires_at`: None for never. `networks`: where it may be used from; empty for anywhere. `name`: what operators call it, such as
    its owner; only they read it. `shared_limit`: of all keys of its workspace; only callers' keys have it."""

    id: str
    workspace_id: str
    test: bool = False
    limit: RateLimit | None = None
    scopes: Scopes = DEFAULT_SCOPES
    expires_at: datetime | None = None
    networks: tuple[Network, ...] = ()
    name: str | None = None
    shared_limit: RateLimit | None = None


class KeyTerms(TypedDict, total=False):
    """The terms of an `ApiKey`, which operators set and change."""

    limit: RateLimit | None
    scopes: Scopes
    expires_at: datetime | None
    networks: tuple[Network, ...]
    name: str | None


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key as operators see it, in force or not. `used_at`: when it was last used, to the minute."""

    key: ApiKey
    created_at: datetime
    revoked_at: datetime | None = None
    used_at: datetime | None = None


Similar = Literal["allow", "refuse"]
SIMILAR: Final[tuple[Similar, ...]] = get_args(Similar)


@dataclass(frozen=True, slots=True)
class Account:
    """An integration account: one PMS, as one workspace uses it. Or the shadow of one, whose PMS is simulated.

    `concurrency`: maximum pushes in flight. `rate_per_second`: maximum requests, None for no limit. `deadline_seconds`: how long a
    submission is tried. `paused`: submissions are ingested and wait. `credential` is sealed; only workers open it. It and the other
    fields that only pushes need are empty in the stages that serve callers, which may not read them. `options`: the settings that
    only its kind of PMS has, as JSON values. `duplicate_window_seconds`: how long the same submission without a key counts as a
    repeat; 0 for never. `similar`: whether to refuse a submission without a key for the stay and guest of an earlier one with
    another body. `skipped_checks`: the checks of `reservation.checks.fields` that its requests may fail. `authorities` and
    `client_certificate`: PEM, to verify its PMS and to authenticate to it; `client_key`: the certificate's, sealed like the
    credential. `settles_seconds`: how long its PMS may take to show a reservation, if longer than its kind states.
    `same_pms_before`: pushes before then went to the same account of the same PMS, whatever address or credential it had."""

    id: str
    workspace_id: str
    kind: str
    base_url: str
    credential: str = field(default="", repr=False)
    concurrency: int = 64
    rate_per_second: float | None = None
    deadline_seconds: int = DEFAULT_DEADLINE_SECONDS
    paused: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    duplicate_window_seconds: int = DEFAULT_WINDOW_SECONDS
    similar: Similar = "allow"
    skipped_checks: tuple[str, ...] = ()
    authorities: str | None = None
    client_certificate: str | None = None
    client_key: str | None = field(default=None, repr=False)
    settles_seconds: float | None = None
    same_pms_before: datetime | None = None

    @property
    def test(self) -> bool:
        return is_test(self.id)

    @property
    def metric_kind(self) -> str:
        """The kind of its PMS as metrics and alerts name it; a shadow's trouble is no trouble of the PMSs of that kind."""
        return "test" if self.test else self.kind


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace, how many accounts, keys that are not revoked, and webhook endpoints it has, and the limit its keys share."""

    id: str
    created_at: datetime
    accounts: int
    keys: int
    webhooks: int
    limit: RateLimit | None = None


class Directory(Protocol):
    """Look-ups on the hot path, cached: changes show within seconds; during outages of the database they stay valid."""

    async def key(self, token: str) -> ApiKey | None:
        """The key with that token, unless revoked; it may have expired. Looks up only tokens that this deployment may have made.
        Raises `TenancyUnavailable`."""

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        """The integration account, or the shadow, with that identifier; in that workspace, if given: another's is looked up, and
        forgotten, as one that does not exist. Raises `TenancyUnavailable`."""


class Sealer(Protocol):
    """Seals with a public key; it cannot open what it seals."""

    def seal_text(self, text: str, bound_to: str) -> str:
        """Seals `text`, such as a credential; it can be opened only with the same binding (see `sealing.binding`)."""


class Unsealer(Protocol):
    """Opens what was sealed, with the private key. Only workers and notifiers have it."""

    def open_text(self, sealed: str, bound_to: str) -> str:
        """Raises `CannotOpen`, `NotBound`."""


MAX_DAYS: Final = 36_500
MAX_DELIVERY_DAYS: Final = 30  # after which every delivery that ended is deleted


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days; None means forever, or the maximum for deliveries. `reservation_days`: from the departure (if confirmed) or the
    outcome, `dead_letter_days`: from the failure, until the guest's data is removed, and no dead letter replayed. `delivery_days`:
    from the end of a webhook delivery until it is deleted."""

    workspace_id: str
    reservation_days: int | None = None
    delivery_days: int | None = None
    dead_letter_days: int | None = None


MAX_ENDPOINTS: Final = 50  # of a workspace
MAX_PREVIOUS_SECRETS: Final = 4
"""Per endpoint, including the one replaced last. A further rotation ends the one that would expire first."""


class TooManyEndpoints(ValueError):
    """The workspace has the maximum number of endpoints. The message names it."""


class UnknownAccount(ValueError):
    """An endpoint selects an account that its workspace does not have. The message names it."""


class Disabled(StrEnum):
    """Why an endpoint is disabled: it returned 410, failed for days, or was disabled by hand."""

    GONE = "gone"
    FAILING = "failing"
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True)
class PreviousSecret:
    """A replaced secret, sealed. It still signs until the moment promised when it was replaced."""

    secret: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One URL of one workspace. It receives only events of these `types`, accounts and properties; None for all. `secret` and
    `headers` (the customer's own) are sealed. `previous`: the one that expires last first; some may have expired. `asymmetric`:
    whether deliveries also carry a `v1a` signature."""

    id: str
    workspace_id: str
    url: str
    types: tuple[str, ...] | None
    description: str
    enabled: bool
    disabled_reason: str | None
    disabled_at: datetime | None
    secret: str = field(repr=False)
    created_at: datetime
    previous: tuple[PreviousSecret, ...] = ()
    account_ids: tuple[str, ...] | None = None
    property_ids: tuple[str, ...] | None = None
    header_names: tuple[str, ...] | None = None
    headers: str | None = field(default=None, repr=False)
    asymmetric: bool = False

    @property
    def previous_until(self) -> datetime | None:
        return self.previous[0].until if self.previous else None

    @property
    def terms(self) -> Mapping[str, Any]:
        """What its workspace chooses."""
        names = "url types account_ids property_ids description header_names headers asymmetric".split()
        return {name: getattr(self, name) for name in names}

    def takes(self, *, kind: str, account_id: str, property_id: str) -> bool:
        """Whether it receives such an event. Events of an account's shadow are the account's."""
        wanted = (self.types, kind), (self.account_ids, live_account_id(account_id)), (self.property_ids, property_id)
        return all(allowed is None or each in allowed for allowed, each in wanted)
