"""Authentication: from a request's headers to the caller, or to the problem that refuses it. No web framework, no I/O of its own.

Without a key, a caller learns nothing. With a key, it does not learn whether other workspaces exist or what they own: the response
is the same for what belongs to someone else and for what does not exist.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol, Self, runtime_checkable

from forwarder.reservation.problems import requests
from forwarder.reservation.problems.problem import Problem
from forwarder.reservation.submission import is_test, shadow_id
from forwarder.tenancy.port import Account, ApiKey, Directory, RateLimit

# Prefixes, so that a leaked token is recognised for what it is.
_LIVE_PREFIX: Final = "fwd_live_"
_TEST_PREFIX: Final = "fwd_test_"
_KEY_PREFIX: Final = "key_"

_MAX_CALLERS: Final = 1_024
_Credentials = tuple[bytes | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, and for which integration account: with a test key, the shadow of the account named in the request."""

    workspace_id: str
    account: Account
    key_id: str
    limit: RateLimit | None = None


async def authenticate(directory: Directory, headers: Mapping[str, str]) -> Caller | Problem:
    """The caller identified by section 5's three headers. `headers` is looked up by lower-case names.

    Raises `TenancyUnavailable`.
    """
    named = _Named.read(headers)
    key = await _key(directory, named)
    if isinstance(key, Problem):
        return key
    account_id = named.account_id
    if is_test(account_id):
        return _account_not_found()  # a shadow cannot be named: a test key names the real account
    account = await directory.account(shadow_id(account_id) if key.test else account_id)
    if account is None or account.workspace_id != key.workspace_id:
        return _account_not_found()
    return Caller(key.workspace_id, account, key.id, key.limit)


async def authenticate_workspace(directory: Directory, headers: Mapping[str, str]) -> ApiKey | Problem:
    """The key of a caller who acts for a whole workspace: no account is required, and one that is named is ignored.

    Raises `TenancyUnavailable`.
    """
    return await _key(directory, _Named.read(headers, _OF_WORKSPACE))


_OF_WORKSPACE: Final = {
    "Authorization": "Bearer and the API key",
    "workspaceId": "the identifier of the workspace that the API key belongs to",
}
_OF_ACCOUNT: Final = {**_OF_WORKSPACE, "integrationAccountId": "the identifier of the integration account to use"}
"""The headers that a caller is named by, and what each holds."""


@dataclass(frozen=True, slots=True)
class _Named:
    """Whom the headers name; empty where they do not. `missing`: those that are needed and not there. `conflicting`: those that
    came more than once, with different values, none of which is taken."""

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


async def _key(directory: Directory, named: _Named) -> ApiKey | Problem:
    """The key of a caller who named whatever is needed, and that key's own workspace."""
    if named.conflicting:
        return _conflicting_headers(named.conflicting)
    token = bearer_token(named.authorization)
    key = None if token is None else await directory.key(token)
    if key is None:
        return _unauthenticated(named.missing, given=token is not None)
    if named.missing:
        return _missing_headers(named.missing)
    return key if named.workspace_id == key.workspace_id else _wrong_workspace()


def bearer_token(authorization: str) -> str | None:
    """The token in an `Authorization` header; None where the header is missing or malformed."""
    match authorization.split():
        case [scheme, token] if scheme.lower() == "bearer":
            return token
        case _:
            return None


def _unauthenticated(missing: Sequence[str], *, given: bool) -> Problem:
    said = "The API key is unknown or was revoked." if given else "The Authorization header is missing or malformed."
    others = [name for name in missing if name != "Authorization"]
    also = f" {_described(others)}" if others else ""
    return requests.UNAUTHENTICATED.problem(f"{said} Send it as: Authorization: Bearer <API key>.{also}")


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
        "Name the workspace that the key was made for.",
    )


def _account_not_found() -> Problem:
    return requests.ACCOUNT_NOT_FOUND.problem(
        "The workspace has no integration account with the identifier in the integrationAccountId header.",
    )


# --- tokens -----------------------------------------------------------------------------------------------------------


def new_token(*, test: bool = False) -> str:
    """A token with 32 random bytes, whose prefix says whether it is a test key's."""
    return (_TEST_PREFIX if test else _LIVE_PREFIX) + secrets.token_urlsafe(32)


def is_test_token(token: str) -> bool:
    """Whether its prefix says that it is a test key's. Trustworthy once its hash is known, which covers the prefix."""
    return token.startswith(_TEST_PREFIX)


def new_key_id() -> str:
    """An identifier for a key. It grants nothing."""
    return _KEY_PREFIX + secrets.token_hex(6)


def token_hash(token: str) -> str:
    """What is stored of a token."""
    return sha256(token.encode()).hexdigest()


# --- callers that were authenticated before ---------------------------------------------------------------------------


@runtime_checkable
class CachingDirectory(Protocol):
    """A directory that says how long its results stay valid."""

    def valid_until(self, token: str, caller: Caller) -> float:
        """Until when, on its clock's monotonic scale, it identifies this same `caller` from memory; `-inf` if it does not."""
        ...


class CallerCache:
    """The latest callers, by the very header fields they sent. Each is valid for just as long as `directory` vouches for its key
    and account from memory; for none at all if the directory does not say. Refused callers are not cached. The fields, tokens
    included, are kept in memory as they came, for at most 1,024 callers."""

    def __init__(self, directory: object) -> None:
        self._directory = directory if isinstance(directory, CachingDirectory) else None
        self._known: dict[_Credentials, tuple[Caller, float]] = {}

    def find(self, fields: Mapping[bytes, bytes], now: float) -> Caller | None:
        """The caller with these header fields (by lower-case name); None where they have to be read."""
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
    caller: Caller, key: tuple[ApiKey, float] | None, account: tuple[Account, float] | None
) -> float:
    """`CachingDirectory.valid_until`, from the key and the account that the directory has cached and until when."""
    if key is None or account is None or account[0] is not caller.account:
        return -math.inf
    same = (key[0].id, key[0].workspace_id, key[0].limit) == (caller.key_id, caller.workspace_id, caller.limit)
    return min(key[1], account[1]) if same else -math.inf


def _credentials(fields: Mapping[bytes, bytes]) -> _Credentials:
    return fields.get(b"authorization"), fields.get(b"workspaceid"), fields.get(b"integrationaccountid")
