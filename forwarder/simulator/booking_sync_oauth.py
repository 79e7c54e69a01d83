"""The authorization server of simulated BookingSyncs, as Doorkeeper is where old tokens end with the first use of their successors.

    POST BASE/oauth/token    a refresh token against the next pair; access tokens live for two hours
    POST BASE/oauth/revoke   an access token ends (RFC 7009)

Accepts every client but the one whose secret is `wrong`, and any foreign refresh token but `wrong` as an account's first one.
Accepts foreign access tokens, like all simulated PMSs. Its state ends with the process."""

import itertools
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qs

from pydantic_core import to_json
from starlette.requests import Request

from forwarder.http.messages import Response
from forwarder.process.clock import Clock
from forwarder.simulator.http import bearer_of, place_of

LIFE: Final = timedelta(hours=2)
_API: Final = "/api/v3"
_ACCESS, _REFRESH = "sim-access-", "sim-refresh-"
_WRONG: Final = "wrong"


@dataclass(slots=True)
class _Token:
    """An access token. `replaces`: the refresh token that ends, together with its access token, when this one is first used."""

    ends: datetime
    refresh: str
    replaces: str


class TokenServer:
    """The token server of all places, each with its own tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._issued: defaultdict[str, dict[str, _Token]] = defaultdict(dict)
        self._ended: set[tuple[str, str]] = set()
        self._numbers = itertools.count(1)

    def lets_in(self, request: Request) -> bool:
        """Whether the request's access token is valid; marks it as used."""
        token, place = bearer_of(request), _place(request)
        if not token.startswith(_ACCESS):
            return True
        known = self._issued[place].get(token)
        if known is None or known.ends <= self._clock.now():
            return False
        self._ended.add((place, known.replaces))
        for other in self._issued[place].values():
            if other.refresh == known.replaces:
                other.ends = self._clock.now()
        return True

    async def token(self, request: Request) -> Response:
        form, place = await _form(request), _place(request)
        if form.get("client_secret") in (None, "", _WRONG) or not form.get("client_id"):
            return _error("invalid_client")
        if form.get("grant_type") != "refresh_token":
            return _error("unsupported_grant_type")
        refresh = form.get("refresh_token", "")
        unknown = refresh not in {token.refresh for token in self._issued[place].values()}
        if refresh in ("", _WRONG) or (refresh.startswith(_REFRESH) and unknown) or (place, refresh) in self._ended:
            return _error("invalid_grant")
        number = next(self._numbers)
        access, following = f"{_ACCESS}{number}", f"{_REFRESH}{number}"
        self._issued[place][access] = _Token(self._clock.now() + LIFE, following, refresh)
        pair = {"access_token": access, "refresh_token": following, "expires_in": int(LIFE.total_seconds())}
        return _json(200, {**pair, "token_type": "bearer", "scope": "public bookings_write"})

    async def revoke(self, request: Request) -> Response:
        known = self._issued[_place(request)].get((await _form(request)).get("token", ""))
        if known is not None:
            known.ends = self._clock.now()
        return _json(200, {})


def _place(request: Request) -> str:
    return place_of(request).removesuffix(_API)


async def _form(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs((await request.body()).decode("latin-1")).items()}


def _error(code: str) -> Response:
    return _json(401, {"error": code, "error_description": f"The simulator says {code}."})


def _json(status: int, body: dict[str, object]) -> Response:
    return Response(status, to_json(body), ((b"cache-control", b"no-store"),))
