"""Authentication: from a request's headers to the caller, or to the problem that refuses it. No web framework, no I/O of its own.

Without a key, a caller learns nothing. With a key, it does not learn whether other workspaces exist or what they own: the response
is the same for what belongs to someone else and for what does not exist.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol, runtime_checkable

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
    token = bearer_token(headers.get("authorization", ""))
    key = None if token is None else await directory.key(token)
    if key is None:
        return _unauthenticated(given=token is not None)
    refused = _refused(key, headers)
    if refused is not None:
        return refused
    account_id = headers.get("integrationaccountid", "").strip()
    if not account_id:
        return _missing_header("integrationAccountId", "the identifier of the integration account to use")
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
    token = bearer_token(headers.get("authorization", ""))
    key = None if token is None else await directory.key(token)
    if key is None:
        return _unauthenticated(given=token is not None)
    return _refused(key, headers) or key


def _refused(key: ApiKey, headers: Mapping[str, str]) -> Problem | None:
    """The problem where a valid key does not match the workspace of the request."""
    workspace_id = headers.get("workspaceid", "").strip()
    if not workspace_id:
        return _missing_header("workspaceId", "the identifier of the workspace that the API key belongs to")
    return None if workspace_id == key.workspace_id else _wrong_workspace()


def bearer_token(authorization: str) -> str | None:
    """The token in an `Authorization` header; None where the header is missing or malformed."""
    match authorization.split():
        case [scheme, token] if scheme.lower() == "bearer":
            return token
        case _:
            return None


def _unauthenticated(*, given: bool) -> Problem:
    said = "The API key is unknown or was revoked." if given else "The Authorization header is missing or malformed."
    return requests.UNAUTHENTICATED.problem(f"{said} Send it as: Authorization: Bearer <API key>.")


def _missing_header(name: str, meaning: str) -> Problem:
    return requests.MISSING_HEADER.problem(f"Every request carries the header {name}: {meaning}.")


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
