"""Access tokens for OAUTHBEARER: granted by an authorization server, or from a file. aiokafka asks for one before it opens a
connection. `token` raises `NoToken`."""

import asyncio
import ssl
import time
from http import HTTPStatus
from pathlib import Path

import httpx
from aiokafka.abc import AbstractTokenProvider

from forwarder.reservation.parsing import decimal
from forwarder.topics.kafka.connection import NoToken
from forwarder.topics.kafka.security import OAuthClient

_MARGIN_SECONDS = 60.0


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Reads the token from a file for each new connection; another program renews the file."""

    def __init__(self, file: Path, _ca_file: Path | None) -> None:
        self._file = file

    async def token(self) -> str:
        try:
            token = self._file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise NoToken(f"FORWARDER_KAFKA_SASL_OAUTH_TOKEN_FILE={self._file} cannot be read: {why}") from None
        if not token:
            raise NoToken(f"FORWARDER_KAFKA_SASL_OAUTH_TOKEN_FILE={self._file} is empty")
        return token


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The token of this client; renewed a minute before it expires, or after four fifths of a short lifetime. A connection requests
    it when it is opened; brokers close connections whose token has expired (`connections.max.reauth.ms`)."""

    def __init__(self, client: OAuthClient, ca_file: Path | None = None) -> None:
        self._client = client
        self._tls = ssl.create_default_context()
        if ca_file is not None:
            self._tls.load_verify_locations(ca_file)
        self._asking = asyncio.Lock()
        self._token = ""
        self._renew_at = 0.0

    async def token(self) -> str:
        async with self._asking:
            asked_at = time.monotonic()
            if asked_at < self._renew_at:
                return self._token
            client, url = self._client, self._client.token_url
            form = {"grant_type": "client_credentials"} | ({"scope": client.scope} if client.scope else {})
            try:
                async with httpx.AsyncClient(verify=self._tls, timeout=5.0) as http:
                    response = await http.post(url, data=form, auth=(client.client_id, client.client_secret))
            except httpx.HTTPError as error:
                raise NoToken(f"{url} cannot be asked for a token: {str(error) or type(error).__name__}") from error
            if response.status_code != HTTPStatus.OK:
                raise NoToken(
                    f"{response.url} gives no token (HTTP {response.status_code}): check "
                    "FORWARDER_KAFKA_SASL_OAUTH_CLIENT_ID, …_CLIENT_SECRET and …_SCOPE"
                )
            try:
                answer = response.json()
                token, asked = str(answer["access_token"]), decimal(answer.get("expires_in"))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise NoToken(f"{response.url} answers without an access_token: is it the token endpoint?") from None
            # At most a year; five minutes if the server does not say.
            life = 300.0 if asked is None or asked <= 0 else min(float(asked), 366 * 24 * 3600.0)
            self._renew_at = asked_at + max(life - _MARGIN_SECONDS, life * 0.8 if life < 5 * _MARGIN_SECONDS else 0)
            self._token = token
            return token
