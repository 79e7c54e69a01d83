"""Authentication: from a request's headers to the caller, or to the problem that refuses it. No web framework, no I/O of its own.

Without a key, a caller learns nothing. With a key, it does not learn whether other workspaces exist or what they own: the response
is the same for resources of others and for unknown ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from forwarder.process.clock import Clock, iso
from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.submission import is_test, shadow_id
from forwarder.tenancy.bad_tokens import BadTokens
from forwarder.tenancy.callers import Caller, CallerCache, bearer_token
from forwarder.tenancy.key_terms import Scope, is_within, write_scopes
from forwarder.tenancy.key_uses import KeyUses
from forwarder.tenancy.port import ApiKey, Directory


class Access:
    """Authenticates the HTTP callers of a process. Shared by its stages, so that they count bad tokens per address together."""

    def __init__(
        self, directory: Directory, clock: Clock, bad_tokens: BadTokens | None = None, uses: KeyUses | None = None
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._bad_tokens = bad_tokens or BadTokens(clock)
        self.uses = uses or KeyUses()

    def new_cache(self) -> CallerCache:
        """A memory of callers for a stage."""
        return CallerCache(self._directory)

    async def caller(self, headers: Mapping[str, str], address: str) -> Caller | Problem:
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
        return Caller(key.workspace_id, account, key.id, key.limit, key.scopes, key.networks)

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


def forbidden(holder: Caller | ApiKey, scope: Scope, address: str) -> Problem | None:
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
