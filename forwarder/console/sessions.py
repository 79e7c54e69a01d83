"""Operators' sessions, in this process's memory: a restart ends all of them. No I/O.

A session holds the token of the key that it was opened with, because only the token shows whether its key is still valid.
"""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from forwarder.process.clock import Clock

IDLE_SECONDS: Final = 30 * 60.0
"""How long a session lasts without an action of its operator; a page that refreshes itself does not count."""
LONGEST_SECONDS: Final = 8 * 60 * 60.0
_MAX_SESSIONS: Final = 1_000
_ID_BYTES: Final = 32


@dataclass(slots=True)
class Session:
    """One operator's browser. `form_token`: a token that each of its forms must carry. `notice`: for the next page to show."""

    token: str = field(repr=False)
    key_id: str
    form_token: str = field(repr=False)
    ends_at: float
    idle_at: float
    notice: str | None = None


class Sessions:
    """The sessions of this process, by their cookies. Keeps only hashes of the cookies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[str, Session] = OrderedDict()

    def open(self, token: str, key_id: str) -> str:
        """Opens a session; returns the value of its cookie, always a new one. At the maximum, ends the oldest session."""
        cookie, now = secrets.token_urlsafe(_ID_BYTES), self._clock.monotonic()
        form_token = secrets.token_urlsafe(_ID_BYTES)
        self._open[_hash(cookie)] = Session(token, key_id, form_token, now + LONGEST_SECONDS, now + IDLE_SECONDS)
        if len(self._open) > _MAX_SESSIONS:
            self._open.popitem(last=False)
        return cookie

    def find(self, cookie: str, *, in_use: bool) -> Session | None:
        """The session of that cookie, unless it has ended. `in_use`: the request is an action of the operator."""
        session, now = self._open.get(_hash(cookie)), self._clock.monotonic()
        if session is None:
            return None
        if now >= min(session.ends_at, session.idle_at):
            self.close(cookie)
            return None
        if in_use:
            session.idle_at = now + IDLE_SECONDS
        return session

    def close(self, cookie: str) -> None:
        self._open.pop(_hash(cookie), None)


def _hash(cookie: str) -> str:
    return sha256(cookie.encode("utf-8", "replace")).hexdigest()
