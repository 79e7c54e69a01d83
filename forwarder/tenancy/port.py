"""Workspaces, API keys, integration accounts, webhook endpoints and sealing, as the stages and the operators' commands use them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, TypedDict, get_args

from forwarder.reservation.duplicates import DEFAULT_WINDOW_SECONDS
from forwarder.reservation.submission import is_test, live_account_id
from forwarder.tenancy.api_keys import DEFAULT_SCOPES, Network, Scopes

DEFAULT_DEADLINE_SECONDS: Final = 24 * 60 * 60
"""How long a submission is tried, unless its account sets another deadline."""


class TenancyUnavailable(Exception):
    """The database is unavailable, and nothing usable is cached."""


class AlreadyExists(ValueError):
    """The identifier is taken. The message names it."""


class NotKnown(LookupError):
    """No such workspace, key or account. The message names it."""


class CannotOpen(ValueError):
    """It was sealed with a key that is not ours, or is damaged."""


class NotBound(CannotOpen):
    """It was sealed for something else and moved here, so it must not be used."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `requests` in any `seconds`."""

    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests}/{self.seconds}s"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that was not revoked. Only a hash of its token is kept. `test`: its callers use the shadows of accounts. `limit`: None
    for the deployment's default. `expires_at`: None if it does not expire. `networks`: where it may be used from; empty for
    anywhere."""

    id: str
    workspace_id: str
    test: bool = False
    limit: RateLimit | None = None
    scopes: Scopes = DEFAULT_SCOPES
    expires_at: datetime | None = None
    networks: tuple[Network, ...] = ()
    name: str | None = None
    """What operators call it, such as its owner; only they read it."""
    shared_limit: RateLimit | None = None
    """The limit that all keys of its workspace share; only callers' keys have it."""


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
    fields that only pushes need are empty in the stages that serve callers, which may not read them.
    `options`: the settings that only its kind of PMS has, as JSON values. `duplicate_window_seconds`: how long the same submission
    without a key counts as a repeat; 0 for never. `similar`: whether to refuse a submission without a key for the stay and guest of
    an earlier one with another body. `skipped_checks`: the checks of `reservation.plausibility` that its requests may fail.
    `authorities` and `client_certificate`: PEM, to verify its PMS and to authenticate to it; `client_key`: the certificate's,
    sealed like the credential. `settles_seconds`: how long its PMS may take to show a reservation, if longer than its kind states.
    `same_pms_before`: pushes before then went to the same account of the same PMS, although address or credential have changed
    since.
    """

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
        """Whether it is a shadow."""
        return is_test(self.id)

    @property
    def metric_kind(self) -> str:
        """The kind of its PMS as metrics and alerts name it; a shadow's trouble is no trouble of the PMSs of that kind."""
        return "test" if self.test else self.kind


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace, and how many accounts, keys that are not revoked, and webhook endpoints it has."""

    id: str
    created_at: datetime
    accounts: int
    keys: int
    webhooks: int
    limit: RateLimit | None = None
    """The limit that its keys share."""


class InUse(Exception):
    """It cannot be removed while something belongs to it. The message says what."""


class ChangedMeanwhile(Exception):
    """Another operator has changed the same since it was read. Nothing was changed. The message says what to do."""


class Directory(Protocol):
    """Look-ups on the hot path. Results are cached, and show changes within a few seconds; while the database is unavailable,
    cached results stay valid."""

    async def key(self, token: str) -> ApiKey | None:
        """The key with that token, unless it was revoked; it may have expired. Rejects tokens that this deployment cannot have made
        without a look-up. Raises `TenancyUnavailable`."""
        ...

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        """The integration account, or the shadow, with that identifier; in that workspace, if given: another's is looked up, and
        forgotten, as one that does not exist. Raises `TenancyUnavailable`."""
        ...


class Sealer(Protocol):
    """Seals with a public key; it cannot open what it seals."""

    def seal_text(self, text: str, bound_to: str) -> str:
        """Seals `text`, such as a credential; it can be opened only with the same binding (see `sealing.binding`)."""
        ...


class Unsealer(Protocol):
    """Opens what was sealed, with the private key. Only workers and notifiers have it."""

    def open_text(self, sealed: str, bound_to: str) -> str:
        """Raises `CannotOpen`, `NotBound`."""
        ...


MAX_DAYS: Final = 36_500
MAX_DELIVERY_DAYS: Final = 30
"""After which every delivery that ended is deleted."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Days; None means forever, or the maximum for deliveries.

    `reservation_days`: from the guest's departure (if confirmed) or the outcome until the guest's data is removed.
    `delivery_days`: from the end of a webhook delivery until it is deleted. `dead_letter_days`: from the failure of a submission
    until its guest's data is removed, after which its dead letter can no longer be replayed.
    """

    workspace_id: str
    reservation_days: int | None = None
    delivery_days: int | None = None
    dead_letter_days: int | None = None


MAX_ENDPOINTS: Final = 50
"""Per workspace."""

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
    """One URL of one workspace. `types`, `account_ids`, `property_ids`: it receives only events of these types, accounts and
    properties; None for all. `secret` is sealed. `previous`: at most `MAX_PREVIOUS_SECRETS` replaced secrets, the one that expires
    last first; some may have expired. `headers`: the customer's own headers, sealed; `header_names`: their names. `asymmetric`:
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
        """When the last of the replaced secrets stops signing."""
        return self.previous[0].until if self.previous else None

    @property
    def terms(self) -> Mapping[str, Any]:
        """The fields that its owner sets."""
        return {name: getattr(self, name) for name in _TERMS}

    def takes(self, *, kind: str, account_id: str, property_id: str) -> bool:
        """Whether it receives such an event. Events of an account's shadow are the account's."""
        wanted = (self.types, kind), (self.account_ids, live_account_id(account_id)), (self.property_ids, property_id)
        return all(allowed is None or each in allowed for allowed, each in wanted)


_TERMS: Final = (
    *("url", "types", "account_ids", "property_ids", "description"),
    *("header_names", "headers", "asymmetric"),
)
