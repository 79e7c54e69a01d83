"""Callers of the API, and a cache of authenticated ones. No I/O."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from forwarder.process.clock import Clock
from forwarder.tenancy.key_terms import DEFAULT_SCOPES, Network, Scopes
from forwarder.tenancy.port import Account, ApiKey, RateLimit

_MAX_CALLERS: Final = 1_024
_Credentials = tuple[bytes | None, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller and its integration account: with a test key, the shadow of the account named in the request.
    `scopes` and `networks`: the key's permissions, and where it may be used from."""

    workspace_id: str
    account: Account
    key_id: str
    limit: RateLimit | None = None
    scopes: Scopes = DEFAULT_SCOPES
    networks: tuple[Network, ...] = ()


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
    same = Caller(held.workspace_id, caller.account, held.id, held.limit, held.scopes, held.networks) == caller
    if held.expires_at is not None:
        until = min(until, clock.monotonic() + (held.expires_at - clock.now()).total_seconds())
    return min(until, account[1]) if same else -math.inf


def _credentials(fields: Mapping[bytes, bytes]) -> _Credentials:
    return fields.get(b"authorization"), fields.get(b"workspaceid"), fields.get(b"integrationaccountid")
