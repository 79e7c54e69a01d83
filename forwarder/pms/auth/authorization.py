"""Access tokens as requests use them: renewed before they end, and once when the PMS no longer takes one.

Private to the seam. An adapter says how its authorization server is asked, and how its PMS says that a token has ended.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictStr, ValidationError

from forwarder.pms.auth.grants import Grant, Grants, GrantsUnavailable
from forwarder.pms.http.client import Request, Send
from forwarder.pms.http.errors import NoResponse, NotSent
from forwarder.pms.http.outcomes import harmless, unexpected
from forwarder.pms.http.response import Response, hold_off_asked
from forwarder.process.clock import Clock
from forwarder.reservation.parsing import decimal

AskServer = Callable[[Grant | None, Send], Awaitable[Grant]]
"""Asks the authorization server for the grant that follows the one given. Raises `NotSent` where it gives none."""

_NOT_LET_IN = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
MARGIN: Final = timedelta(seconds=60)
"""A token that ends within this is renewed before it is used: a request may be on its way for a while."""


def is_unauthorized(response: Response) -> bool:
    """The usual word for a token that is not taken."""
    return response.status_code == HTTPStatus.UNAUTHORIZED


class Authorization:
    """One account's. Nothing of what was asked with a refused token was done by the PMS, so that it is safe to ask again.

    `min_seconds`: for how long a token is not replaced, even if the PMS refuses it: where it gives out few a day, and means
    something else by the same status.
    """

    def __init__(
        self,
        account_id: str,
        grants: Grants,
        clock: Clock,
        ask: AskServer,
        *,
        ended: Callable[[Response], bool] = is_unauthorized,
        min_seconds: float = 0.0,
    ) -> None:
        self._account_id = account_id
        self._grants = grants
        self._clock = clock
        self._ask = ask
        self._ended = ended
        self._min_life = timedelta(seconds=min_seconds)

    async def send(self, build: Callable[[str], Request], send: Send) -> Response:
        """The response to the request that `build` makes for an access token. Raises what `send` raises, and `NotSent` where no
        token can be had."""
        try:
            grant = await self._grants.current(self._account_id)
        except GrantsUnavailable as error:
            raise _grants_unavailable(error) from error
        if grant is None or (grant.expires_at is not None and grant.expires_at <= self._clock.now() + MARGIN):
            grant = await self._renewed(grant, send)
        response = await send(build(grant.access_token))
        fresh = grant.granted_at is not None and self._clock.now() < grant.granted_at + self._min_life
        if fresh or not self._ended(response):
            return response
        renewed = await self._renewed(grant, send)
        return await send(build(renewed.access_token))

    async def _renewed(self, used: Grant | None, send: Send) -> Grant:
        async def ask(latest: Grant | None) -> Grant:
            return await self._ask(latest, send)

        try:
            return await self._grants.renew(self._account_id, used, ask)
        except GrantsUnavailable as error:
            raise _grants_unavailable(error) from error
        except NoResponse as error:  # from the authorization server, which books nothing
            raise NotSent(error.reason, error.detail) from error


def _grants_unavailable(error: GrantsUnavailable) -> NotSent:
    return NotSent("grants_unavailable", f"The account's access token could not be read or kept: {error}.")


def no_token(response: Response, now: datetime) -> NotSent:
    """Why there is none. RFC 6749 (section 5.2) words a credential that is not accepted as 400 or 401."""
    status = response.status_code
    if status in _NOT_LET_IN:
        detail = f"The PMS gives no access token for the account's credential (HTTP {status})."
        return NotSent("pms_unauthorized", detail)
    outcome = harmless(unexpected(response, now))
    wait = outcome.retry_after_seconds or hold_off_asked(response, now) or None
    return NotSent(outcome.reason, outcome.detail, retry_after_seconds=wait)


class _Token(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True, str_strip_whitespace=True)

    access_token: StrictStr = Field(min_length=1, validation_alias=AliasChoices("access_token", "accessToken", "token"))
    refresh_token: Any = None
    expires_in: Any = Field(None, validation_alias=AliasChoices("expires_in", "expiresIn"))


_LONGEST_LIFE: Final = 366 * 24 * 3600


def granted(response: Response, refresh_token: str | None, now: datetime) -> Grant:
    """The grant in the response of an authorization server; what else is in it must not lose the tokens. `refresh_token`: stays in
    force if the response brings no other. Raises `NotSent` if there is no token in it."""
    try:
        token = _Token.model_validate_json(response.json_text)
    except ValidationError:
        raise NotSent("pms_answer_not_understood", "The authorization server's answer holds no token.") from None
    life, renewed = decimal(token.expires_in), token.refresh_token
    ends = now + timedelta(seconds=float(life)) if life is not None and 0 < life <= _LONGEST_LIFE else None
    following = renewed if isinstance(renewed, str) and renewed else refresh_token
    return Grant(token.access_token, following, ends, granted_at=now)
