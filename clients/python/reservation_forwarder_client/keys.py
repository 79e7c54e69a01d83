"""Idempotency keys that the client makes: one for each submission, and the same one again after a call that failed. Pure."""

import secrets
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

_MAX_KEPT: Final = 1_000


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return secrets.token_urlsafe(24)


class FailedKeys:
    """The keys of the last 1,000 calls that failed, by the account and the reservation object that they submitted. The reservation
    may have been accepted: submitted again, unchanged, it must have the same key. Threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], tuple[Mapping[str, Any], bytes, str]] = {}
        self._changing = Lock()

    def key_for(self, account: str, reservation: Mapping[str, Any], body: bytes) -> str:
        """The key of the account's failed call with this object and `body`, or a new one."""
        kept = self._kept.get((account, id(reservation)))
        return kept[2] if kept is not None and kept[0] is reservation and kept[1] == body else new_key()

    def keep(self, account: str, reservation: Mapping[str, Any], body: bytes, key: str) -> None:
        """Call when submitting `reservation` under `key` failed."""
        with self._changing:
            self._kept.pop((account, id(reservation)), None)
            if len(self._kept) >= _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[account, id(reservation)] = reservation, body, key

    def forget(self, account: str, reservation: Mapping[str, Any]) -> None:
        """Call when it was accepted."""
        with self._changing:
            self._kept.pop((account, id(reservation)), None)
