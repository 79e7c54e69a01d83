"""Workspaces, API keys, integration accounts and sealing, as the stages and the operators' commands use them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from forwarder.reservation.duplicates import DEFAULT_WINDOW_SECONDS
from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.reservation.submission import is_test

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
    """A key that is in force. Of its token only a hash is kept. `test`: its callers act in the shadows of accounts. `limit`: its
    own, None where it has the deployment's default."""

    id: str
    workspace_id: str
    test: bool = False
    limit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key as operators see it, in force or not."""

    key: ApiKey
    created_at: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """An integration account: one PMS, as one workspace uses it. Or the shadow of one, whose PMS is simulated.

    `concurrency`: most pushes in flight. `rate_per_second`: most requests, None for no limit. `deadline_seconds`: how long a
    submission is tried. `paused`: submissions are taken in and wait. `credential` is sealed, and opened by the worker.
    `options`: the settings that only its kind of PMS has, as JSON values. `duplicate_window_seconds`: for how long a submission
    that comes again without a key is the earlier one; 0 for never. `skipped_checks`: of `reservation.plausibility`, those that its
    requests need not pass.
    """

    id: str
    workspace_id: str
    kind: str
    base_url: str
    credential: str = field(repr=False)
    concurrency: int = 64
    rate_per_second: float | None = None
    deadline_seconds: int = DEFAULT_DEADLINE_SECONDS
    paused: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    duplicate_window_seconds: int = DEFAULT_WINDOW_SECONDS
    skipped_checks: tuple[str, ...] = ()

    @property
    def test(self) -> bool:
        """Whether it is a shadow."""
        return is_test(self.id)


class Directory(Protocol):
    """Look-ups on the hot path. Results are cached for a few seconds, within which a change is seen; while the database is away,
    cached results stay valid."""

    async def key(self, token: str) -> ApiKey | None:
        """The valid key with that token. Raises `TenancyUnavailable`."""
        ...

    async def account(self, account_id: str) -> Account | None:
        """The integration account, or the shadow, with that identifier. Raises `TenancyUnavailable`."""
        ...


class TenancyAdmin(Protocol):
    """What operators change. Raises `AlreadyExists`, `NotKnown`, `TenancyUnavailable`."""

    async def add_workspace(self, workspace_id: str) -> None: ...

    async def add_key(
        self, workspace_id: str, *, test: bool = False, limit: RateLimit | None = None
    ) -> tuple[ApiKey, str]:
        """A new key and its token, which is shown only here and stored nowhere."""
        ...

    async def set_limit(self, key_id: str, limit: RateLimit | None) -> None:
        """Set a key's own limit; None is the deployment's default."""
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

    def seal_card(self, card: CardDetails) -> SealedCard: ...

    def seal_text(self, text: str, bound_to: str) -> str:
        """`text` (a credential, say) sealed; it opens only as what it is bound to, by one of `sealing.binding`."""
        ...


class Unsealer(Protocol):
    """Opens what was sealed, with the private key. Only workers and notifiers have it."""

    def open_card(self, card: SealedCard) -> CardDetails:
        """The card. Raises `CannotOpen`."""
        ...

    def open_text(self, sealed: str, bound_to: str) -> str:
        """Raises `CannotOpen`, `NotBound`."""
        ...
