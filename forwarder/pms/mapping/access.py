"""Authentication of an account's requests by its credential, by access tokens or by signatures, as a mapping describes it."""

import hmac
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from http import HTTPStatus
from itertools import chain
from typing import Annotated, Final, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import from_json, to_json

from forwarder.pms import sdk
from forwarder.pms.auth import is_unauthorized
from forwarder.pms.http.client import destination_of
from forwarder.pms.mapping.parts import Condition, HeaderName, MappingTable, Scalar, Text
from forwarder.pms.mapping.values import nonsense

SignedPart = Literal["method", "path", "query", "timestamp", "nonce", "bodySha256", "key"]
"""What a signature may cover. `path` includes the path of the base URL; `query` has its parameters sorted by name."""
MEDIA_TYPES: Final = {"form": b"application/x-www-form-urlencoded", "json": b"application/json"}
_ACCEPT: Final = (b"Accept", b"application/json")


def _token_url(url: str) -> str:
    if not url.startswith(("{base}/", "{host}/", "https://")):
        raise nonsense(
            "an address below the base URL as {base}/…, below its host as {host}/…, or one that begins with https://"
        )
    return url


class OAuth(MappingTable):
    """Access tokens of OAuth 2.0. They are kept with the account, and shared by all workers."""

    grant: Literal["client_credentials", "refresh_token", "header"] = "client_credentials"
    """`client_credentials`: the credential is `CLIENT_ID:SECRET`. `refresh_token`: it is a JSON object with clientId, clientSecret
    and refreshToken, and each answer brings the next refresh token. Any other credential is an access token, and sent unchanged.
    `header`: the credential is a refresh token that never changes, sent in a header of a GET."""
    header: HeaderName | None = None
    """The header for the grant header."""
    token_url: Annotated[str, AfterValidator(_token_url)]
    """Where tokens are requested."""
    encoding: Literal["form", "json"] = "form"
    """The form of the body of a request for a token."""
    scope: Text | None = None
    """The scope that is requested."""
    ended: Condition = Condition(status=frozenset({401}))
    """How the PMS says that a token has expired. With `when` it has precedence over all `errors`; without, `errors` that read the
    body have precedence."""
    tokens_per_day: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many tokens a day the PMS grants. A token is kept for that share of a day at least."""
    usable_after_seconds: Annotated[float, Field(ge=0, le=10)] = 0.0
    """How long to wait before a new token is used."""

    def mistakes(self) -> Iterator[str]:
        if not self.ended.status:
            yield "ended: `status` lists the statuses"
        if (self.header is None) == (self.grant == "header"):
            yield "`header` is for the grant header, which needs it"


class Signature(MappingTable):
    """HMAC-SHA256 in base64 over parts of the request, one on each line. The credential is `KEY:SECRET`."""

    headers: Mapping[HeaderName, Literal["key", "timestamp", "nonce", "signature"]]
    """What each header carries."""
    text: Annotated[tuple[SignedPart, ...], Field(min_length=1)]
    """The parts that are signed, in this order. A timestamp is written as 2027-01-31T12:00:00Z."""

    def mistakes(self) -> Iterator[str]:
        carried = set(self.headers.values())
        if "signature" not in carried or len(carried) != len(self.headers):
            yield "headers: one carries the signature, and no two carry the same"
        if lacking := {"timestamp", "nonce"} & set(self.text) - carried:
            yield f"headers: one must carry the {', '.join(sorted(lacking))} that is signed"


class Auth(MappingTable):
    """How requests are authenticated."""

    only_if: Mapping[Text, Scalar] = Field(default_factory=dict)
    """The accounts that it is for: options with their values. Required for each of several forms but the last."""
    form: Literal["bearer", "basic", "header", "oauth", "signed"] = "bearer"
    """How it is sent."""
    name: HeaderName | None = None
    """The header, for the form header; for oauth, the header of access tokens, if not Authorization."""
    credential: Literal["user:password", "key"] = "user:password"
    """The credential of `basic`: a pair, or one key that is encoded alone."""
    oauth: OAuth | None = None
    """For the form oauth."""
    signature: Signature | None = None
    """For the form signed."""

    def mistakes(self) -> Iterator[str]:
        if self.form != "oauth" and (self.name is None) == (self.form == "header"):
            yield "`name` is for the form header, which needs it, and for oauth"
        if (self.oauth is None) == (self.form == "oauth"):
            yield "`oauth` is for the form oauth, which needs it"
        if (self.signature is None) == (self.form == "signed"):
            yield "`signature` is for the form signed, which needs it"
        if self.credential == "key" and self.form != "basic":
            yield "`credential` is for the form basic"


class Credentials:
    """Authenticates one account's requests. `ended`: whether a response says that a token has expired. `token_url`: replaces the
    mapping's. `more`: further fields of a request for a token. `renews`: whether it has tokens that end, and are renewed."""

    def __init__(
        self,
        auth: Auth,
        connection: sdk.AccountConnection,
        clock: sdk.Clock,
        *,
        ended: Callable[[sdk.Response], bool] = is_unauthorized,
        token_url: str | None = None,
        more: Mapping[str, str | None] | None = None,
    ) -> None:
        self._auth, self._clock, self._credential = auth, clock, connection.credential
        self._ended, self._more = ended, more or {}
        oauth = auth.oauth
        self._client = None if oauth is None else _client_of(oauth, connection.credential)
        self._authorization: sdk.Authorization | None = None
        if oauth is not None and (self._client is not None or oauth.grant == "header"):
            base = host = connection.base_url.rstrip("/")
            with suppress(ValueError):  # from what is no address: no request can be sent there, either
                host = urlsplit(base)._replace(path="", query="", fragment="").geturl()
            self._url = token_url or oauth.token_url.replace("{base}", base).replace("{host}", host)
            whose = (connection.account_id, connection.grants)
            life = 0.0 if oauth.tokens_per_day is None else 86_400 / oauth.tokens_per_day
            self._authorization = sdk.Authorization(*whose, clock, self._ask, ended=ended, min_seconds=life)
        self.renews = self._authorization is not None

    async def send(self, request: sdk.Request, send: sdk.Send) -> sdk.Response:
        """The response to `request`, authenticated. Raises what `send` raises, and `NotSent` for an unusable credential."""
        auth, credential = self._auth, self._credential

        def shown(token: str) -> sdk.Request:
            headers = sdk.bearer(token) if auth.name is None else sdk.credential_header(auth.name.encode(), token)
            return replace(request, headers=(*request.headers, *headers))

        if auth.oauth is not None and self._authorization is not None:
            response = await self._authorization.send(shown, send)
            if auth.oauth.ended.when and self._ended(response):  # one of `errors` might take it for a refusal
                raise sdk.NotSent("pms_unauthorized", "The PMS takes the account's access token no more.")
            return response
        if auth.signature is not None:
            return await send(_signed(request, auth.signature, credential, self._clock.now()))
        if auth.form != "basic" or not credential:
            return await send(shown(credential))
        if auth.credential == "user:password" and ":" not in credential:
            raise sdk.NotSent("pms_credential_invalid", "The account's credential is not of the form user:password.")
        if auth.credential == "key":
            sdk.credential_header(b"Authorization", credential)  # raises for what no header can hold
        basic = (b"Authorization", b"Basic " + b64encode(credential.encode()))
        return await send(replace(request, headers=(*request.headers, basic)))

    async def _ask(self, latest: sdk.Grant | None, send: sdk.Send) -> sdk.Grant:
        oauth, client = self._auth.oauth, self._client
        assert oauth is not None  # noqa: S101 - for the type: nothing else has an authorization
        refresh_token: str | None = None
        if client is None:
            shown = sdk.credential_header((oauth.header or "").encode(), self._credential)
            request = sdk.Request("GET", self._url, (*shown, _ACCEPT))
        else:
            client_id, secret, refresh_token = client
            if oauth.grant == "refresh_token" and latest is not None:
                refresh_token = latest.refresh_token or refresh_token
            asked = {"grant_type": oauth.grant, "client_id": client_id, "client_secret": secret, "scope": oauth.scope}
            asked |= {"refresh_token": refresh_token, **self._more}
            form = {name: text for name, text in asked.items() if text is not None}
            content = urlencode(form).encode() if oauth.encoding == "form" else to_json(form)
            request = sdk.Request("POST", self._url, (_ACCEPT, (b"Content-Type", MEDIA_TYPES[oauth.encoding])), content)
        response = await send(request)
        if response.status_code not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise sdk.no_token(response, self._clock.now())
        grant = sdk.granted(response, refresh_token, self._clock.now())
        if oauth.usable_after_seconds:
            await self._clock.sleep(oauth.usable_after_seconds)
        return grant


def _signed(request: sdk.Request, signature: Signature, credential: str, now: datetime) -> sdk.Request:
    key, _, secret = credential.partition(":")
    if not key or not secret:
        raise sdk.NotSent("pms_credential_invalid", "The account's credential is not of the form KEY:SECRET.")
    query = urlencode(sorted(parse_qsl(request.query, keep_blank_values=True)), quote_via=quote)
    parts: dict[SignedPart | Literal["signature"], str] = {
        "method": request.method,
        "path": destination_of(request.url).target.decode("ascii"),
        "query": query,
        "timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nonce": secrets.token_hex(16),
        "bodySha256": sha256(request.content).hexdigest(),
        "key": key,
    }
    text = "\n".join(parts[part] for part in signature.text)
    parts["signature"] = b64encode(hmac.digest(secret.encode(), text.encode(), "sha256")).decode()
    headers = [sdk.credential_header(name.encode(), parts[what]) for name, what in signature.headers.items()]
    return replace(request, headers=(*request.headers, *chain(*headers)), query=query)


def _client_of(oauth: OAuth, credential: str) -> tuple[str, str, str | None] | None:
    """The id and the secret of an OAuth client, and a refresh token; None for a credential that is itself a token."""
    if oauth.grant == "refresh_token":
        with suppress(ValueError):
            match from_json(credential):
                case {"clientId": str(name), "clientSecret": str(key), "refreshToken": str(token)} if name and key:
                    return name, key, token
        return None
    client_id, _, secret = credential.partition(":")
    return (client_id, secret, None) if oauth.grant != "header" and client_id and secret else None
