"""Workspaces, API keys, integration accounts and sealing, as the stages and the command see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forwarder.reservation.card import SealedCard
from forwarder.reservation.request import CardDetails


class TenancyUnavailable(Exception):
    """The directory could not be reached, and the answer is not known from before."""


class AlreadyExists(ValueError):
    """That identifier is taken. The message names it."""


class NotKnown(LookupError):
    """No such workspace, key or account. The message names it."""


class CannotOpen(ValueError):
    """Sealed with a key that is not ours, or damaged."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that is in force. Of its token only a hash is kept."""

    id: str
    workspace_id: str


@dataclass(frozen=True, slots=True)
class Account:
    """An integration account: one PMS, as one workspace uses it.

    `concurrency`: most pushes in flight. `rate_per_second`: most requests, None for no limit. `deadline_seconds`: how long a
    submission is tried. `paused`: submissions are taken in and wait. `credential` is sealed: base64, opened by the worker.
    `options`: the settings that only its kind of PMS has, as JSON values.
    """

    id: str
    workspace_id: str
    kind: str
    base_url: str
    credential: str = field(repr=False)
    concurrency: int = 64
    rate_per_second: float | None = None
    deadline_seconds: int = 24 * 60 * 60
    paused: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


class Directory(Protocol):
    """Look-ups on the hot path. Answers come from memory for a few seconds (the age is a setting), so that a change is seen
    within that time; while the database is away, known answers stay good."""

    async def key(self, token: str) -> ApiKey | None:
        """The key in force with that token. Raises `TenancyUnavailable`."""
        ...

    async def account(self, account_id: str) -> Account | None:
        """The integration account. Raises `TenancyUnavailable`."""
        ...


class Registry(Protocol):
    """What the operator's commands change. Raises `AlreadyExists`, `NotKnown`, `TenancyUnavailable`."""

    async def add_workspace(self, workspace_id: str) -> None: ...

    async def add_key(self, workspace_id: str) -> tuple[ApiKey, str]:
        """A new key and its token, which is shown this once and kept nowhere."""
        ...

    async def revoke_key(self, key_id: str) -> None: ...

    async def put_account(self, account: Account, *, replace: bool = False) -> None:
        """Add an account, or with `replace` write over the one of that id (of the same workspace)."""
        ...

    async def accounts(self, workspace_id: str | None = None) -> Sequence[Account]: ...

    async def pause(self, account_id: str, *, paused: bool) -> None: ...


class CardSealer(Protocol):
    """Holds a public key only: what it seals, it cannot open."""

    def seal_card(self, card: CardDetails) -> SealedCard: ...

    def seal_text(self, text: str) -> str:
        """Base64 of `text` sealed, for credentials."""
        ...


class Vault(Protocol):
    """Holds the private key: the worker's alone."""

    def open_card(self, card: SealedCard) -> CardDetails:
        """The card, in memory. Raises `CannotOpen`."""
        ...

    def open_text(self, sealed: str) -> str:
        """Raises `CannotOpen`."""
        ...
