"""Callers known again by the very header fields with which they came before: nothing of those need be read then. No I/O."""

import math
from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

from forwarder.tenancy.access import Caller, bearer_token
from forwarder.tenancy.port import Account, ApiKey

_AT_MOST: Final = 1_024
_Credentials = tuple[bytes | None, bytes | None, bytes | None]


@runtime_checkable
class Remembering(Protocol):
    """A directory that tells how long its answers are good."""

    def good_until(self, token: str, caller: Caller) -> float:
        """Until when, on its clock's monotonic scale, it makes out this same `caller` from memory; `-inf` where it does not."""
        ...


class RememberedCallers:
    """Those who called last, each for just as long as what `directory` said of its key and its account is good from memory.
    None at all where the directory does not tell. Who is refused is not remembered. The fields, tokens among them, are held in
    memory as they came, those of at most 1,024 callers."""

    def __init__(self, directory: object) -> None:
        self._directory = directory if isinstance(directory, Remembering) else None
        self._known: dict[_Credentials, tuple[Caller, float]] = {}

    def find(self, fields: Mapping[bytes, bytes], now: float) -> Caller | None:
        """The caller whom these header fields make out; None where they have to be read. `fields`: by lower-case name."""
        known = self._known.get(_credentials(fields))
        return known[0] if known is not None and now < known[1] else None

    def remember(self, fields: Mapping[bytes, bytes], caller: Caller) -> None:
        """These `fields` were just found to make out `caller`."""
        token = bearer_token(fields.get(b"authorization", b"").decode("latin-1"))
        if self._directory is None or token is None:
            return
        credentials = _credentials(fields)
        self._known.pop(credentials, None)
        self._known[credentials] = (caller, self._directory.good_until(token, caller))
        if len(self._known) > _AT_MOST:
            del self._known[next(iter(self._known))]


def until(caller: Caller, key: tuple[ApiKey, float] | None, account: tuple[Account, float] | None) -> float:
    """What a directory says with `good_until`, of what it remembers of the caller's key and account, and for how long."""
    if key is None or account is None or account[0] is not caller.account:
        return -math.inf
    same = (key[0].id, key[0].workspace_id, key[0].limit) == (caller.key_id, caller.workspace_id, caller.limit)
    return min(key[1], account[1]) if same else -math.inf


def _credentials(fields: Mapping[bytes, bytes]) -> _Credentials:
    return fields.get(b"authorization"), fields.get(b"workspaceid"), fields.get(b"integrationaccountid")
