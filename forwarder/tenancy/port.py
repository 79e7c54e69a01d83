"""Workspaces, API keys, integration accounts and sealing, as the stages and the operators' commands use them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypedDict, Unpack, get_args

from forwarder.reservation.duplicates import DEFAULT_WINDOW_SECONDS
from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.reservation.submission import is_test
from forwarder.tenancy.key_terms import DEFAULT_SCOPES, Network, Scopes

DEFAULT_DEADLINE_SECONDS: Final = 24 * 60 * 60
"""How long a submission is tried, where its account says nothing else."""


class TenancyUnavailable(Exception):
    """The database could not be reached, and nothing usable is cached."""


class AlreadyExists(ValueError):
    """That identifier is taken. The message names it."""


class NotKnown(LookupError):
    """No such workspace, key or account. The message names it."""


class CannotOpen(ValueError):
    """It was sealed with a key that is not ours, or is damaged."""


class NotBound(CannotOpen):
    """It was sealed for something else, and moved here: it is not to be used."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `requests` in any `seconds`."""

    requests: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.requests}/{self.seconds}s"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that was not revoked. Of its token only a hash is kept. `test`: its callers act in the shadows of accounts. `limit`:
    its own, None where it has the deployment's default. `expires_at`: until when it works, None for ever. `networks`: where it may
    be used from; none for anywhere."""

    id: str
    workspace_id: str
    test: bool = False
    limit: RateLimit | None = None
    scopes: Scopes = DEFAULT_SCOPES
    expires_at: datetime | None = None
    networks: tuple[Network, ...] = ()


class KeyTerms(TypedDict, total=False):
    """What of an `ApiKey` is chosen, and may be changed."""

    limit: RateLimit | None
    scopes: Scopes
    expires_at: datetime | None
    networks: tuple[Network, ...]


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

    `concurrency`: most pushes in flight. `rate_per_second`: most requests, None for no limit. `deadline_seconds`: how long a
    submission is tried. `paused`: submissions are taken in and wait. `credential` is sealed, and opened by the worker.
    It and what else only pushes need are empty where callers are served, who must not read them.
    `options`: the settings that only its kind of PMS has, as JSON values. `duplicate_window_seconds`: for how long a submission
    that comes again without a key is the earlier one; 0 for never. `similar`: whether one without a key is refused for the stay and
    the guest of an earlier one, where its body is another. `skipped_checks`: of `reservation.plausibility`, those that its
    requests need not pass. `authorities` and `client_certificate`: PEM, what its PMS is believed by and shown; `client_key`: the
    certificate's, sealed as the credential is. `settles_seconds`: how long its PMS may take to show a reservation, where that is
    longer than its kind states. `same_pms_before`: what was pushed before then went to the same account of the same PMS, though
    address or credential have changed since.
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


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace, and how many accounts, keys that are not revoked, and webhook endpoints it has."""

    id: str
    created_at: datetime
    accounts: int
    keys: int
    webhooks: int


class InUse(Exception):
    """It cannot be removed: something belongs to it. Says what."""


class Directory(Protocol):
    """Look-ups on the hot path. Results are cached for a few seconds, within which a change is seen; while the database is away,
    cached results stay valid."""

    async def key(self, token: str) -> ApiKey | None:
        """The key with that token, unless it was revoked; it may have expired. What this deployment cannot have made is told
        without a look-up. Raises `TenancyUnavailable`."""
        ...

    async def account(self, account_id: str) -> Account | None:
        """The integration account, or the shadow, with that identifier. Raises `TenancyUnavailable`."""
        ...


class TenancyAdmin(Protocol):
    """What operators change. Raises `AlreadyExists`, `NotKnown`, `TenancyUnavailable`."""

    async def add_workspace(self, workspace_id: str) -> None: ...

    async def workspaces(self, workspace_id: str | None = None) -> Sequence[Workspace]:
        """All, or one, by their ids."""
        ...

    async def remove_workspace(self, workspace_id: str) -> None:
        """Remove one that has neither accounts nor webhooks, with its keys. Raises `InUse`."""
        ...

    async def add_key(self, workspace_id: str, *, test: bool = False, **terms: Unpack[KeyTerms]) -> tuple[ApiKey, str]:
        """A new key and its token, which is shown only here and stored nowhere."""
        ...

    async def change_key(self, key_id: str, **terms: Unpack[KeyTerms]) -> KnownKey:
        """Change the terms that are given; the key as it is then."""
        ...

    async def revoke_key(self, key_id: str) -> None: ...

    async def keys(self, workspace_id: str | None = None) -> Sequence[KnownKey]:
        """In the order of their creation."""
        ...

    async def put_account(self, account: Account, *, replace: bool = False) -> None:
        """Add an account; with `replace`, overwrite the one with that id in the same workspace."""
        ...

    async def accounts(self, workspace_id: str | None = None) -> Sequence[Account]: ...

    async def kinds(self) -> Sequence[str]:
        """The kinds of PMS that accounts have."""
        ...

    async def pause(self, account_id: str, *, paused: bool) -> None: ...

    async def forget_grants(self, account_id: str, *, but: str) -> None:
        """Forget the grants of every credential of the account but the one with the digest `but`."""
        ...


class Sealer(Protocol):
    """Seals with a public key: what it seals, it cannot open."""

    def seal_text(self, text: str, bound_to: str) -> str:
        """`text` (a credential, say) sealed; it opens only as what it is bound to, by one of `sealing.binding`."""
        ...


class CardSealer(Protocol):
    """Seals cards for the topic."""

    def seal_card(self, card: CardDetails, bound_to: str, now: datetime) -> SealedCard | None:
        """The card, sealed as what it is bound to, by `sealing.binding`; None where there is no key that is valid at `now`."""
        ...


class SealingKeys(Protocol):
    """The short-lived keys that cards are sealed to on the topic, in the hands of workers. Raises `TenancyUnavailable`."""

    async def publish(self, *, now: datetime) -> int:
        """Make those of the next days, as far as they are missing; how many."""
        ...

    async def private_key(self, key_id: str) -> bytes | None:
        """None where it was destroyed, or never was. Raises `CannotOpen` where it needs a secret that is not given."""
        ...

    async def ended(self, *, now: datetime) -> Mapping[str, Mapping[int, int] | None]:
        """Those that nothing is sealed to any more and that are not destroyed, by their ids; and where the partitions ended after
        that, None where nobody has looked yet."""
        ...

    async def note_ends(self, key_ids: Collection[str], ends: Mapping[int, int]) -> None: ...

    async def destroy(self, key_ids: Collection[str]) -> None: ...


class Unsealer(Protocol):
    """Opens what was sealed, with the private key. Only workers and notifiers have it."""

    def open_text(self, sealed: str, bound_to: str) -> str:
        """Raises `CannotOpen`, `NotBound`."""
        ...
