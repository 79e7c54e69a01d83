"""The worker's port to PMSs: operations, capabilities and limits. No HTTP here: outcomes are already decided.

Failures of a PMS, or of the connection to it, raise nothing in this port; `UnknownKind` is a mistake in an account's settings.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, Self

from pydantic_core import from_json, to_json

from forwarder.reservation.booking import AS_IT_IS, Booking, ReferenceForm
from forwarder.reservation.evidence import KEY_SECONDS
from forwarder.reservation.outcome import CancelOutcome, Deferred, LookupOutcome, Outcome, Rejected


class UnknownKind(LookupError):
    """No adapter is registered for that kind of PMS. The message names the registered kinds."""


class BadOptions(ValueError):
    """An account's options are invalid for its kind of PMS. The message names each invalid one, and what would be right."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of PMS can do. Decides how an ambiguous push is resolved.

    `idempotent_create`: creating twice with one key makes one reservation, so that a push may be sent again.
    `find_by_reference`: a reservation can be looked up by our reference, so that a push can be checked.
    `cancel`: a reservation can be cancelled.
    `max_per_create`: how many reservations one request can ask for, each with its own outcome.
    `names_reference`: each confirmation names our reference, so that one without it is in doubt. If it is False, an adapter
    compares what a confirmation shows with the request.
    `finds_by_stay`: a look-up recognises a reservation only by its property, days and guest: it can prove that there is none, but
    not that one that looks alike is ours (`LOOKS_ALIKE`).
    `settles`: seconds after the end of a create until its reservation is certainly shown, a late commit included; 0 for a PMS that
    shows a new reservation at once; None if the kind states nothing.
    `key_seconds`: how long the PMS keeps idempotency keys. `reference_form`: how much of our reference it keeps.
    `proves_absence`: a look-up that finds nothing proves that there is nothing; else it may find, and never says `Absent`.
    """

    idempotent_create: bool
    find_by_reference: bool
    cancel: bool
    max_per_create: int = 1
    names_reference: bool = False
    finds_by_stay: bool = False
    settles: float | None = None
    key_seconds: float = KEY_SECONDS
    reference_form: ReferenceForm = AS_IT_IS
    proves_absence: bool = True


# --- reasons of `Deferred` and `InDoubt` ---

LOOKS_ALIKE: Final = "pms_shows_one_alike"
"""A look-up found a reservation that may or may not be ours."""
CANCELLED_IN_PMS: Final = "cancelled_in_pms"
"""A look-up found that the reservation was cancelled in the PMS since."""
REFUSED_IN_WORDS: Final = "pms_refused_in_words"
"""A refusal in words that the adapter does not recognise: certain only if the PMS repeats it."""
SEARCH_UNPROVEN: Final = "pms_search_unproven"
"""A look-up found nothing in a PMS whose search may leave reservations out."""
LEASE_LOST: Final = "lease_lost"
"""The worker no longer held the reservation when the next byte was to be sent."""

NOT_ABOUT_THE_PMS: Final = {CANCELLED_IN_PMS, LEASE_LOST, LOOKS_ALIKE, REFUSED_IN_WORDS, SEARCH_UNPROVEN}.union(
    "grants_unavailable mapping_does_not_fit mapping_lacks_it no_connection_free pms_address_invalid".split(),
    "pms_credential_invalid pms_half_made pms_has_it pms_knows_key pms_list_changing pms_lists_too_much".split(),
    "pms_not_encrypted pms_payment_not_possible pms_reference_not_shown pms_scope_too_small pms_still_working".split(),
)
"""Reasons that concern one reservation, the account's settings or this process. Every other reason of this port means that the PMS,
or the connection to it, is failing."""

OVERLOADED: Final = frozenset(
    "pms_connect_timed_out pms_throttled pms_timed_out pms_timed_out_reading pms_unavailable".split()
)
"""Reasons by which a PMS shows that it is overloaded."""


# --- how an account's PMS is reached ---


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `requests` within any `seconds`, for one account, or for all of the deployment, which counts as one address."""

    requests: int
    seconds: float
    per: Literal["account", "address"] = "account"


@dataclass(frozen=True, slots=True)
class Limits:
    """The rate limits that a kind of PMS publishes for an account: all of `each` apply together; empty: no limit.
    `requests_per_push`: how many requests a push takes if nothing goes wrong."""

    each: tuple[Limit, ...] = ()
    requests_per_push: int = 1


class Pace(Protocol):
    """Counts requests against an account's rate limit. Its methods return at once and raise nothing."""

    def requested(self) -> None: ...

    def hold_off(self, seconds: float) -> None:
        """The PMS asked for a pause."""


class _Unpaced:
    def requested(self) -> None: ...

    def hold_off(self, seconds: float) -> None: ...


UNPACED: Final[Pace] = _Unpaced()


@dataclass(frozen=True, slots=True)
class ClientTls:
    """An account's own TLS settings, as PEM. `authorities`: trusted instead of the system's, at all of its addresses.
    `certificate` and `key`: the client certificate, if the PMS requires one; both or none."""

    authorities: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)


SYSTEM_TLS: Final = ClientTls()


@dataclass(frozen=True, slots=True)
class Grant:
    """What an authorization server granted to an account, in the clear: in memory only. `expires_at`: when the access token ends,
    None if that is not known. `granted_at`: by the clock of the process that asked; None where nothing depends on it."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None
    granted_at: datetime | None = None

    def as_text(self) -> str:
        """To be sealed, and read again by `from_text`."""
        tokens = {"accessToken": self.access_token, "refreshToken": self.refresh_token}
        return to_json({**tokens, "expiresAt": self.expires_at, "grantedAt": self.granted_at}).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        parts: dict[str, Any] = from_json(text)
        moments = (parts["expiresAt"], parts.get("grantedAt"))
        return cls(
            parts["accessToken"], parts["refreshToken"], *(each and datetime.fromisoformat(each) for each in moments)
        )


Ask = Callable[[Grant | None], Awaitable[Grant]]
"""Asks the authorization server for the grant that follows the one given; None where there was none yet. What it raises goes
through `renew`, and nothing is changed."""


class GrantsUnavailable(Exception):
    """Grants could not be read or kept, so that none may be used."""


class Grants(Protocol):
    """Keeps one grant for each account. Raises `GrantsUnavailable`."""

    async def current(self, account_id: str) -> Grant | None:
        """The latest that is known; may be a little older than what another process has."""

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:
        """The grant that follows `used`: the one that somebody else renewed meanwhile, or else what `ask` brings, kept for good
        before it is returned. At most one `ask` for an account is under way, in all processes together."""


class LentGrant:
    """`Grants` of somebody else, never renewed: a refresh token that is asked for and lost is lost to its owner too."""

    def __init__(self, grant: Grant | None) -> None:
        self._grant = grant

    async def current(self, account_id: str) -> Grant | None:  # noqa: ARG002 - the port's
        return self._grant

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:  # noqa: ARG002 - the port's
        raise GrantsUnavailable("the access token was lent, and is not renewed here")


class MemoryGrants:
    """`Grants` of this process alone: enough where no refresh token changes."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def current(self, account_id: str) -> Grant | None:
        return self._grants.get(account_id)

    async def renew(self, account_id: str, used: Grant | None, ask: Ask) -> Grant:
        async with self._asking[account_id]:
            known = self._grants.get(account_id)
            if known is None or known == used:
                known = self._grants[account_id] = await ask(known or used)
            return known


@dataclass(frozen=True, slots=True)
class AccountConnection:
    """Address and credential of one integration account's PMS. The credential is in the clear: in memory only. `options`: the
    account's settings that are specific to its kind of PMS, as JSON values."""

    account_id: str
    kind: str
    base_url: str
    credential: str = field(repr=False)
    pace: Pace = field(default=UNPACED, repr=False, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    grants: Grants = field(default_factory=MemoryGrants, repr=False, compare=False)
    tls: ClientTls = SYSTEM_TLS


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A request as a caller may see it: without credentials, and with only the masked number of a card. `path`: with its query,
    without the host. `body`: JSON, or the fields of a form by their names; None if there is none."""

    method: str
    path: str
    media_type: str | None
    body: Any


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The requests that a create would make, as far as they can be known without asking the PMS. `assumed`: placeholders in them
    for values that only the PMS can give. `outcome`: the outcome of a create that sends nothing, if that is certain already."""

    requests: Sequence[ShownRequest] = ()
    assumed: Sequence[str] = ()
    outcome: Rejected | Deferred | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """A field of requests that an account does not send on, and why. `unless`: another field, and the value with which it does."""

    field: str
    reason: str
    unless: tuple[str, str] | None = None


class Preview(Protocol):
    """Dry runs from an account's kind and options alone: asks no PMS, and does not need the credential."""

    async def rehearse(self, connection: AccountConnection, booking: Booking) -> Rehearsal:
        """The requests that creating `booking` would make. Raises `UnknownKind` and `BadOptions`."""

    def losses(self, connection: AccountConnection) -> Sequence[Loss]:
        """The fields of requests that do not reach that PMS. Empty if the account's settings are wrong: they may be repaired."""


class Pms(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    def while_held(self, held: Callable[[], bool]) -> "Pms":
        """The same, for a push that may lose its right to send: `held` is called before each request. Once it returns
        False, nothing more is sent, and the operation is deferred (`LEASE_LOST`), unless its outcome was decided before."""

    async def create(self, booking: Booking) -> Outcome:
        """Ask the PMS, once, to make `booking`. Returns within the push time-out; cancelling it leaves it in doubt."""

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        """As `create`, for at most `max_per_create` at once: an outcome for each, in their order."""

    async def find(self, booking: Booking) -> LookupOutcome:
        """Look for a reservation that carries `booking.reference`. Only with `find_by_reference`."""

    async def cancel(self, booking: Booking, pms_reservation_id: str) -> CancelOutcome:
        """Cancel the PMS's reservation with that id, made for `booking` (without its card). Safe to repeat. Only with `cancel`."""


class PmsDirectory(Protocol):
    def limits(self, kind: str, options: Mapping[str, Any]) -> Limits:
        """The published limits of that kind, for an account with these options; none for a kind that is not registered."""

    def connect(self, connection: AccountConnection) -> Pms:
        """The PMS behind `connection`; cheap, opens nothing by itself. Raises `UnknownKind` and `BadOptions`."""
