"""Requests to BookingSync as one account: its address, its media type, its access tokens, and what its refusals say of the account.

Access tokens live for two hours, and the refresh token changes with every renewal (content/reference/authorization.md of the
vendor's documentation). Nothing there says for how long an old refresh token works. BookingSync runs on Doorkeeper, which ends it
with the first use of the new access token, where it was set up for that: so the new one is kept before it is used.
"""

from datetime import timedelta
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError

from forwarder.pms.kinds.booking_sync.options import BookingSyncOptions, OAuthCredential, credential_of
from forwarder.pms.sdk import (
    AccountConnection,
    Authorization,
    Clock,
    Deferred,
    Grant,
    InDoubt,
    NoResponse,
    NotSent,
    Request,
    Response,
    Send,
    bearer,
    bounded,
    harmless,
    no_token,
    outcome_of,
    unexpected,
    whole_number,
)

MEDIA_TYPE: Final = b"application/vnd.api+json"
_FORM: Final = (
    (b"Accept", b"application/json"),
    (b"Content-Type", b"application/x-www-form-urlencoded"),
)
_API: Final = "/api/v3"
_LONGEST_LIFE: Final = 366 * 24 * 3600


class _Token(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    access_token: StrictStr
    refresh_token: StrictStr | None = None
    expires_in: int | None = None


class BookingSyncApi:
    """Asks; a token that is no longer taken is renewed once, and what was asked with it is asked again."""

    def __init__(self, connection: AccountConnection, options: BookingSyncOptions, clock: Clock) -> None:
        self._base_url = connection.base_url.rstrip("/")
        self._clock = clock
        self._options = options
        self._credential = credential_of(connection.credential)
        self._authorization = Authorization(connection.account_id, connection.grants, clock, self._renew)

    async def ask(self, send: Send, method: str, path: str, content: bytes = b"", *, query: str = "") -> Response:
        """The response to a request below the base URL. Raises `NotSent` and `NoResponse`."""

        def build(token: str) -> Request:
            headers = [*bearer(token), (b"Accept", MEDIA_TYPE)]
            if content:
                headers.append((b"Content-Type", MEDIA_TYPE))
            return Request(method, f"{self._base_url}/{path}", headers, content, query=query)

        match self._credential:
            case str() as token:
                return await send(build(token))
            case OAuthCredential():
                return await self._authorization.send(build, send)
            case _:
                detail = "The account's credential is a JSON object without clientId, clientSecret and refreshToken."
                raise NotSent("pms_credential_invalid", detail)

    async def ask_again_at_will(
        self, send: Send, method: str, path: str, content: bytes = b"", *, query: str = ""
    ) -> Response | Deferred:
        """The same for a request that may be made any number of times: no response is no more than a delay."""
        try:
            return await self.ask(send, method, path, content, query=query)
        except (NotSent, NoResponse) as failure:
            return harmless(outcome_of(failure))

    def unexpected(self, response: Response) -> Deferred | InDoubt:
        """What a response means that was not decided by itself."""
        if response.status_code == HTTPStatus.FORBIDDEN:
            # The vendor's word for a good token whose application was not given the scope: the operator can ask for it.
            detail = "The account's application may not do this (HTTP 403): it lacks a scope, or another one owns the booking."
            return Deferred("pms_scope_too_small", detail)
        outcome = unexpected(response, self._clock.now())
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS and isinstance(outcome, Deferred):
            return Deferred(outcome.reason, outcome.detail, outcome.retry_after_seconds or self._until_reset(response))
        return outcome

    def _until_reset(self, response: Response) -> float | None:
        """Seconds until the unix time in `X-RateLimit-Reset`."""
        reset = whole_number(response.header("x-ratelimit-reset") or "")
        return None if reset is None else bounded(reset - self._clock.now().timestamp())

    async def _renew(self, latest: Grant | None, send: Send) -> Grant:
        """Exchange the latest refresh token, or the credential's own where none was granted yet."""
        credential = self._credential
        assert isinstance(credential, OAuthCredential)  # noqa: S101 - for the type: nothing else has an authorization
        known = None if latest is None else latest.refresh_token
        form = {
            "grant_type": "refresh_token",
            "client_id": credential.client_id,
            "client_secret": credential.client_secret,
            "refresh_token": known or credential.refresh_token,
        }
        if self._options.redirect_uri is not None:
            form["redirect_uri"] = self._options.redirect_uri
        response = await send(Request("POST", self._token_url, _FORM, urlencode(form).encode("ascii")))
        if response.status_code != HTTPStatus.OK:
            raise no_token(response, self._clock.now())
        return self._grant_in(response, form["refresh_token"])

    @property
    def _token_url(self) -> str:
        return self._options.token_url or f"{self._base_url.removesuffix(_API)}/oauth/token"

    def _grant_in(self, response: Response, refresh_token: str) -> Grant:
        try:
            token = _Token.model_validate_json(response.json_text)
        except ValidationError:
            raise NotSent("pms_answer_not_understood", "The authorization server's answer holds no token.") from None
        life = token.expires_in
        known = life is not None and 0 <= life <= _LONGEST_LIFE
        ends = self._clock.now() + timedelta(seconds=life) if known and life is not None else None
        return Grant(token.access_token, token.refresh_token or refresh_token, ends)
