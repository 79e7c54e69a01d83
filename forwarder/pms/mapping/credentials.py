"""What lets the requests of an account in: its credential, tokens that it brings, or a signature over each request."""

import hmac
import secrets
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictStr, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from forwarder.pms.auth.authorization import Authorization, no_token
from forwarder.pms.auth.grants import Grant
from forwarder.pms.http.client import Request, Send, bearer, credential_header, destination_of
from forwarder.pms.http.errors import NotSent
from forwarder.pms.http.response import Headers, Response
from forwarder.pms.mapping.format.access import Auth, OAuth, Signature, SignedPart
from forwarder.pms.mapping.format.parts import HeaderName
from forwarder.pms.port import AccountConnection
from forwarder.process.clock import Clock

_LONGEST_LIFE: Final = 366 * 24 * 3600
_MEDIA_TYPES: Final = {"form": b"application/x-www-form-urlencoded", "json": b"application/json"}
_ACCEPT: Final = (b"Accept", b"application/json")
Ended = Callable[[Response], bool]


class Credentials:
    """One account's way in. `ended`: whether a response says that a token is taken no more. `token_url`: in place of the
    mapping's."""

    def __init__(
        self, auth: Auth, connection: AccountConnection, clock: Clock, ended: Ended, token_url: str | None = None
    ) -> None:
        self._auth = auth
        self._credential = connection.credential
        self._clock = clock
        self._tokens: _Tokens | None = None
        if auth.oauth is not None and auth.oauth.grant == "header":
            self._tokens = _Tokens(auth.oauth, auth.name, None, connection, clock, ended, token_url)
        elif auth.oauth is not None:
            client = _client_of(auth.oauth, connection.credential)
            if client is not None:
                self._tokens = _Tokens(auth.oauth, auth.name, client, connection, clock, ended, token_url)

    async def send(self, request: Request, send: Send) -> Response:
        """The response to `request`, let in. Raises what `send` raises, and `NotSent` where the credential cannot be used."""
        if self._tokens is not None:
            return await self._tokens.send(request, send)
        return await send(self._let_in(request))

    def _let_in(self, request: Request) -> Request:
        auth, credential = self._auth, self._credential
        if auth.signature is not None:
            return _signed(request, auth.signature, credential, self._clock.now())
        if auth.form == "query" and auth.name is not None:
            if not credential:
                return request
            return replace(
                request, query="&".join([*filter(None, [request.query]), urlencode({auth.name: credential})])
            )
        return with_headers(request, _header(auth, credential))


def with_headers(request: Request, headers: Headers) -> Request:
    """The request with more of them."""
    return replace(request, headers=(*request.headers, *headers))


def _header(auth: Auth, credential: str) -> Headers:
    if not credential:
        return ()
    if auth.form == "basic":
        if auth.credential == "user:password" and ":" not in credential:
            raise NotSent("pms_credential_invalid", "The account's credential is not of the form user:password.")
        if auth.credential == "key":
            credential_header(b"Authorization", credential)  # which no key is that could not stand there as it is
        return ((b"Authorization", b"Basic " + b64encode(credential.encode())),)
    if auth.name is None:
        return bearer(credential)
    return credential_header(auth.name.encode(), credential)


# --- signatures ---


def _signed(request: Request, signature: Signature, credential: str, now: datetime) -> Request:
    key, _, secret = credential.partition(":")
    if not key or not secret:
        raise NotSent("pms_credential_invalid", "The account's credential is not of the form KEY:SECRET.")
    query = urlencode(sorted(parse_qsl(request.query, keep_blank_values=True)), quote_via=quote)
    parts: dict[SignedPart, str] = {
        "method": request.method,
        "path": destination_of(request.url).target.decode("ascii"),
        "query": query,
        "timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ")
        if signature.timestamp == "iso8601"
        else str(int(now.timestamp())),
        "nonce": secrets.token_hex(16),
        "bodySha256": sha256(request.content).hexdigest(),
        "key": key,
    }
    text = signature.joined_by.join(parts[part] for part in signature.text)
    digest = hmac.digest(secret.encode(), text.encode(), "sha256")
    signed = b64encode(digest).decode() if signature.encoding == "base64" else digest.hex()
    headers: list[tuple[bytes, bytes]] = []
    for name, what in signature.headers.items():
        headers += credential_header(name.encode(), signed if what == "signature" else parts[what])
    return replace(with_headers(request, headers), query=query)


# --- tokens ---


class _Client(BaseModel):
    """Whom the authorization server knows."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", hide_input_in_errors=True)

    client_id: StrictStr = Field(min_length=1)
    client_secret: StrictStr = Field(min_length=1)
    refresh_token: StrictStr | None = None


class _Token(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)

    access_token: StrictStr = Field(min_length=1, validation_alias=AliasChoices("access_token", "token"))
    refresh_token: StrictStr | None = None
    expires_in: int | None = Field(None, validation_alias=AliasChoices("expires_in", "expiresIn"))


def _client_of(oauth: OAuth, credential: str) -> _Client | None:
    """None for a credential that is an access token of its own."""
    if oauth.grant == "client_credentials":
        client_id, colon, secret = credential.partition(":")
        return _Client(clientId=client_id, clientSecret=secret) if colon and client_id and secret else None
    try:
        client = _Client.model_validate(from_json(credential))
    except (ValueError, ValidationError):
        return None
    return client if client.refresh_token is not None else None


def _origin(base: str) -> str:
    """Scheme and host of an address; itself, which no request can be sent to either, where it is none."""
    try:
        parts = urlsplit(base)
    except ValueError:
        return base
    return f"{parts.scheme}://{parts.netloc}"


class _Tokens:
    def __init__(
        self,
        oauth: OAuth,
        header: HeaderName | None,
        client: _Client | None,
        connection: AccountConnection,
        clock: Clock,
        ended: Ended,
        token_url: str | None,
    ) -> None:
        self._oauth = oauth
        self._name = header
        self._client = client
        self._credential = connection.credential
        self._clock = clock
        self._ended = ended
        base = connection.base_url.rstrip("/")
        self._url = token_url or oauth.token_url.replace("{base}", base).replace("{host}", _origin(base))
        self._authorization = Authorization(
            connection.account_id,
            connection.grants,
            clock,
            self._ask,
            ended=ended,
            min_seconds=oauth.min_seconds,
        )

    async def send(self, request: Request, send: Send) -> Response:
        response = await self._authorization.send(lambda token: with_headers(request, self._shown(token)), send)
        if self._oauth.ended.when and self._ended(response):  # which a rule for all errors would take for a no
            raise NotSent("pms_unauthorized", "The PMS takes the account's access token no more.")
        return response

    def _shown(self, token: str) -> Headers:
        return bearer(token) if self._name is None else credential_header(self._name.encode(), token)

    async def _ask(self, latest: Grant | None, send: Send) -> Grant:
        oauth, client = self._oauth, self._client
        if client is None:
            shown = credential_header((oauth.header or "").encode(), self._credential)
            return await self._given(Request("GET", self._url, (*shown, _ACCEPT)), None, send)
        asked = {
            "grant_type": oauth.grant,
            "client_id": client.client_id,
            "client_secret": client.client_secret,
            "scope": oauth.scope,
        }
        if oauth.grant == "refresh_token":
            asked["refresh_token"] = (latest.refresh_token if latest is not None else None) or client.refresh_token
        form = {name: text for name, text in asked.items() if text is not None}
        content = urlencode(form).encode("ascii") if oauth.encoding == "form" else to_json(form)
        headers = (_ACCEPT, (b"Content-Type", _MEDIA_TYPES[oauth.encoding]))
        return await self._given(Request("POST", self._url, headers, content), form.get("refresh_token"), send)

    async def _given(self, request: Request, refresh_token: str | None, send: Send) -> Grant:
        response = await send(request)
        if response.status_code not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise no_token(response, self._clock.now())
        grant = self._granted(response, refresh_token)
        if self._oauth.usable_after_seconds:
            await self._clock.sleep(self._oauth.usable_after_seconds)
        return grant

    def _granted(self, response: Response, refresh_token: str | None) -> Grant:
        try:
            token = _Token.model_validate_json(response.json_text)
        except ValidationError:
            raise NotSent("pms_answer_not_understood", "The authorization server's answer holds no token.") from None
        now, life = self._clock.now(), token.expires_in
        ends: Any = now + timedelta(seconds=life) if life is not None and 0 <= life <= _LONGEST_LIFE else None
        return Grant(token.access_token, token.refresh_token or refresh_token, ends, granted_at=now)
