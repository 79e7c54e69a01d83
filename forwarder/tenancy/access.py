"""Authentication: from a request's headers to the caller, or to the problem that refuses it. No web framework, no I/O of its own.

Without a key, a caller learns nothing. With a key, it does not learn whether other workspaces exist or what they own: the response
is the same for resources of others and for unknown ones.

Access remembers the latest callers, throttles clients that guess tokens, and notes when each key was last used."""

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol, Self, runtime_checkable

import structlog

from forwarder.observability.metrics import BAD_TOKENS
from forwarder.process.addresses import client_of
from forwarder.process.clock import Clock, iso
from forwarder.process.containment import Where
from forwarder.process.loops import forever
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.submission import is_test, shadow_id
from forwarder.tenancy.api_keys import DEFAULT_SCOPES, Network, Scope, Scopes, is_within, write_scopes
from forwarder.tenancy.port import Account, ApiKey, Directory, RateLimit, TenancyUnavailable


class Access:
    """Authenticates the HTTP callers of a process. Shared by its stages, so that they count bad tokens per address together."""

    def __init__(
        self, directory: Directory, clock: Clock, bad_tokens: "BadTokens | None" = None, uses: "KeyUses | None" = None
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._bad_tokens = bad_tokens or BadTokens(clock)
        self.uses = uses or KeyUses()

    def new_cache(self) -> "CallerCache":
        """A memory of callers for a stage."""
        return CallerCache(self._directory)

    async def caller(self, headers: Mapping[str, str], address: str) -> "Caller | Problem":
        """The caller identified by section 5's three headers, who calls from `address`. `headers` is looked up by lower-case names.
        What it may do is another question: `forbidden`. Raises `TenancyUnavailable`."""
        named = _Named.read(headers)
        key = await self._key(named, address)
        if isinstance(key, Problem):
            return key
        account_id = named.account_id
        if is_test(account_id):
            return _account_not_found()  # a shadow cannot be named: a test key names the real account
        account = await self._directory.account(shadow_id(account_id) if key.test else account_id)
        if account is None or account.workspace_id != key.workspace_id:
            return _account_not_found()
        return Caller(key.workspace_id, account, key.id, key.limit, key.scopes, key.networks, key.shared_limit)

    async def workspace_key(self, headers: Mapping[str, str], address: str) -> ApiKey | Problem:
        """The key of a caller who acts for a whole workspace: requires no account header, and ignores one. Raises
        `TenancyUnavailable`."""
        return await self._key(_Named.read(headers, _OF_WORKSPACE), address)

    async def operator(self, token: str, address: str) -> ApiKey | Problem:
        """The live key with that token, if it may do what operators do, from `address`. Raises `TenancyUnavailable`."""
        key = await self._directory.key(token) if token else None
        if key is None:
            again_in = self._bad_tokens.count(address) if token else None
            return _NOT_AN_OPERATOR if again_in is None else _throttled(again_in)
        return self._expired(key) or forbidden(key, "operate", address) or self._live(key)

    def _live(self, key: ApiKey) -> ApiKey | Problem:
        if key.test:
            return _NOT_AN_OPERATOR
        self.uses.note(key.id)
        return key

    def _expired(self, key: ApiKey) -> Problem | None:
        if key.expires_at is None or key.expires_at > self._clock.now():
            return None
        return requests.KEY_EXPIRED.problem(f"The API key expired at {iso(key.expires_at)}. Ask for another one.")

    async def _key(self, named: "_Named", address: str) -> ApiKey | Problem:
        """The key of a caller who sent all required headers, with the key's own workspace; or the problem."""
        if named.conflicting:
            return _conflicting_headers(named.conflicting)
        token = bearer_token(named.authorization)
        key = None if token is None else await self._directory.key(token)
        if key is None:
            again_in = None if token is None else self._bad_tokens.count(address)
            return (
                _unauthenticated(named.missing, given=token is not None) if again_in is None else _throttled(again_in)
            )
        if (expired := self._expired(key)) is not None:
            return expired
        self.uses.note(key.id)
        if named.missing:
            return _missing_headers(named.missing)
        return key if named.workspace_id == key.workspace_id else _wrong_workspace()


def forbidden(holder: "Caller | ApiKey", scope: Scope, address: str) -> Problem | None:
    """The refusal of an operation that needs `scope`, called from `address`; None if the key allows it."""
    if holder.networks and not is_within(address, holder.networks):
        return requests.ADDRESS_NOT_ALLOWED.problem(
            f"The API key may not be used from the address that this request came from, {address or 'which is unknown'}."
        )
    if scope not in holder.scopes:
        return requests.INSUFFICIENT_SCOPE.problem(
            f"The API key lacks the scope {scope}, which this operation needs. It has: {write_scopes(holder.scopes)}.",
            extra={"scope": scope},
        )
    return None


_OF_WORKSPACE: Final = {
    "Authorization": "Bearer and the API key",
    "workspaceId": "the identifier of the workspace that the API key belongs to",
}

_OF_ACCOUNT: Final = {**_OF_WORKSPACE, "integrationAccountId": "the identifier of the integration account to use"}
"""The headers that a caller is named by, and what each holds."""


@dataclass(frozen=True, slots=True)
class _Named:
    """The values of the identifying headers; empty if absent. `missing`: required headers that are absent. `conflicting`: headers
    that came more than once with different values, none of which is used."""

    authorization: str
    workspace_id: str
    account_id: str
    missing: Sequence[str]
    conflicting: Sequence[str]

    @classmethod
    def read(cls, headers: Mapping[str, str], needed: Mapping[str, str] = _OF_ACCOUNT) -> Self:
        # Lines of one name come joined by commas, whether we or a proxy joined them. None of these values has one in it.
        given = {name: {each.strip() for each in headers.get(name.lower(), "").split(",")} for name in needed}
        one = {name: values.pop() if len(values) == 1 else "" for name, values in given.items()}
        conflicting = [name for name, values in given.items() if values]
        missing = [name for name, value in one.items() if not value and name not in conflicting]
        authorization, workspace_id, account_id = (one.get(name, "") for name in _OF_ACCOUNT)
        return cls(authorization, workspace_id, account_id, missing, conflicting)


_NOT_AN_OPERATOR: Final = requests.UNAUTHENTICATED.problem(
    "This is not a valid live key. Operators create one with: forwarder key add --workspace … --scope operate."
)


def _unauthenticated(missing: Sequence[str], *, given: bool) -> Problem:
    said = "The API key is unknown or was revoked." if given else "The Authorization header is missing or malformed."
    others = [name for name in missing if name != "Authorization"]
    also = f" {_described(others)}" if others else ""
    return requests.UNAUTHENTICATED.problem(f"{said} Send it as: Authorization: Bearer <API key>.{also}")


def _throttled(seconds: int) -> Problem:
    problem = requests.TOO_MANY_BAD_TOKENS.problem(
        f"Too many unknown API keys came from this address. Send a valid one, or retry in {seconds} seconds."
    )
    return replace(problem, retry_after=seconds)


def _missing_headers(names: Sequence[str]) -> Problem:
    return requests.MISSING_HEADER.problem(_described(names))


def _described(missing: Sequence[str]) -> str:
    headers = " and ".join(f"{name} ({_OF_ACCOUNT[name]})" for name in missing)
    return f"Missing: {headers}. Every request carries {'it' if len(missing) == 1 else 'them'} as a header."


def _conflicting_headers(names: Sequence[str]) -> Problem:
    what = f"{names[0]} came" if len(names) == 1 else f"{' and '.join(names)} each came"
    return requests.CONFLICTING_HEADERS.problem(f"The header {what} more than once, with different values. Send one.")


def _wrong_workspace() -> Problem:
    return requests.WRONG_WORKSPACE.problem(
        "The API key does not give access to the workspace named by the workspaceId header. "
        "Send the workspace of the key.",
    )


def _account_not_found() -> Problem:
    return requests.ACCOUNT_NOT_FOUND.problem(
        "The workspace has no integration account with the ID in the integrationAccountId header. Your operator can list valid IDs "
        "with `forwarder account list`.",
    )


_MAX_CALLERS: Final = 1_024
_Credentials = tuple[bytes | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller and its integration account: with a test key, the shadow of the account named in the request.
    `scopes` and `networks`: the key's permissions, and where it may be used from. `shared_limit`: of all keys of the workspace."""

    workspace_id: str
    account: Account
    key_id: str
    limit: RateLimit | None = None
    scopes: Scopes = DEFAULT_SCOPES
    networks: tuple[Network, ...] = ()
    shared_limit: RateLimit | None = None


def bearer_token(authorization: str) -> str | None:
    """The token in an `Authorization` header; None where the header is missing or malformed."""
    match authorization.split():
        case [scheme, token] if scheme.lower() == "bearer":
            return token
        case _:
            return None


@runtime_checkable
class CachingDirectory(Protocol):
    """A directory that states how long its results stay valid."""

    def valid_until(self, token: str, caller: Caller) -> float:
        """Until when, on its clock's monotonic scale, its cache maps the token to this same `caller`; `-inf` if it does not."""
        ...


class CallerCache:
    """Caches the latest callers by the exact header fields they sent. An entry is valid as long as `directory` has its key and
    account cached; never if the directory cannot tell. Refused callers are not cached. Keeps the fields, tokens included, in
    memory, for at most 1,024 callers."""

    def __init__(self, directory: object) -> None:
        self._directory = directory if isinstance(directory, CachingDirectory) else None
        self._known: dict[_Credentials, tuple[Caller, float]] = {}

    def find(self, fields: Mapping[bytes, bytes], now: float) -> Caller | None:
        """The cached caller with these header fields (by lower-case name), or None."""
        known = self._known.get(_credentials(fields))
        return known[0] if known is not None and now < known[1] else None

    def remember(self, fields: Mapping[bytes, bytes], caller: Caller) -> None:
        """These `fields` have just authenticated `caller`."""
        token = bearer_token(fields.get(b"authorization", b"").decode("latin-1"))
        if self._directory is None or token is None:
            return
        credentials = _credentials(fields)
        self._known.pop(credentials, None)
        self._known[credentials] = (caller, self._directory.valid_until(token, caller))
        if len(self._known) > _MAX_CALLERS:
            del self._known[next(iter(self._known))]


def caller_valid_until(
    caller: Caller, key: tuple[ApiKey, float] | None, account: tuple[Account, float] | None, clock: Clock
) -> float:
    """`CachingDirectory.valid_until`, from the key and the account that the directory has cached and until when."""
    if key is None or account is None or account[0] is not caller.account:
        return -math.inf
    held, until = key
    same = (
        Caller(held.workspace_id, caller.account, held.id, held.limit, held.scopes, held.networks, held.shared_limit)
        == caller
    )
    if held.expires_at is not None:
        until = min(until, clock.monotonic() + (held.expires_at - clock.now()).total_seconds())
    return min(until, account[1]) if same else -math.inf


def _credentials(fields: Mapping[bytes, bytes]) -> _Credentials:
    return fields.get(b"authorization"), fields.get(b"workspaceid"), fields.get(b"integrationaccountid")


DEFAULT_PER_MINUTE: Final = 60
_WINDOW_SECONDS: Final = 60.0
_log = structlog.get_logger(__name__)


class BadTokens:
    """Counts recent bad tokens per address. An address may send `per_minute`, and as many again each minute."""

    def __init__(self, clock: Clock, per_minute: int = DEFAULT_PER_MINUTE, *, max_addresses: int = 10_000) -> None:
        self._clock = clock
        self._interval = _WINDOW_SECONDS / per_minute
        self._max_addresses = max_addresses
        self._full_at: OrderedDict[object, float] = OrderedDict()
        self._report = _Report()
        self._refused, self._throttled = (BAD_TOKENS.labels(answer) for answer in ("refused", "throttled"))

    def count(self, address: str) -> int | None:
        """Count one from `address`. Where that were too many, it is not counted: seconds until it would be."""
        now, source = self._clock.monotonic(), client_of(address)
        full_at = max(self._full_at.pop(source, now), now)
        too_soon = full_at + self._interval - now - _WINDOW_SECONDS
        self._full_at[source] = full_at if too_soon > 0 else full_at + self._interval
        if len(self._full_at) > self._max_addresses:
            self._full_at.popitem(last=False)
        if too_soon <= 0:
            self._refused.inc()
            return None
        self._throttled.inc()
        self._report.add(address, now)
        return max(math.ceil(too_soon), 1)


class _Report:
    """Logs at most one line a minute."""

    def __init__(self) -> None:
        self._count = 0
        self._due = -math.inf

    def add(self, address: str, now: float) -> None:
        self._count += 1
        if now >= self._due:
            _log.warning("tokens.throttled", address=address, since_last=self._count)
            self._count, self._due = 0, now + _WINDOW_SECONDS


WRITE_SECONDS: Final = 60.0


class UseStore(Protocol):
    """Stores the times of use."""

    async def used(self, key_ids: Collection[str], at: datetime) -> None:
        """These keys were used by `at`. Raises `TenancyUnavailable`."""
        ...


class KeyUses:
    """The keys that were used since the last write, by this process."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def note(self, key_id: str) -> None:
        """Notes the use of a key. Call it when a caller is looked up, which happens every few seconds while it calls."""
        self._used.add(key_id)

    async def write(self, store: UseStore, clock: Clock) -> None:
        """Write down what was noted. Raises `TenancyUnavailable`; it is still noted then, as after any other exception."""
        used, self._used = self._used, set()
        if not used:
            return
        try:
            await store.used(used, clock.now())
        except BaseException:
            self._used |= used
            raise


async def write_uses(uses: KeyUses, store: UseStore, clock: Clock) -> None:
    """Writes every minute, forever, through outages of the database."""

    async def step() -> None:
        await clock.sleep(WRITE_SECONDS)
        await uses.write(store, clock)

    await forever(step, name=Where.KEY_USES, clock=clock, outages=(TenancyUnavailable,))
