"""How BookingSync is reached: what an account of kind `booking-sync` can be set to, its credential, and its requests."""

from http import HTTPStatus
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import from_json

from forwarder.pms import sdk
from forwarder.pms.mapping.access import Auth, Credentials

SECURE_PAYMENTS: Final = "https://secure.bookingsync.com/api/bookingsync/instant_bookings"
"""The only address for cards, from the vendor's payments guide."""

_OWN_MACHINE = {"localhost", "127.0.0.1", "::1"}


def _safe_for_secrets(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _OWN_MACHINE):
        return url
    raise ValueError("must begin with https://, since secrets are sent there")


_SecretsUrl = Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s]+$"), AfterValidator(_safe_for_secrets)]
_TimeOfDay = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
_Text = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]


class SecurePayments(sdk.NoOptions):
    """How cards reach the gateway of the account's rentals, by the vendor's own payment platform. The vendor gives all of it."""

    gateway_id: _Text = Field(description="The id of the payment gateway that is assigned to the rentals.")
    gateway_name: Literal["booking_pay", "ogone", "stripe", "bogus"] = Field(description="The gateway's name.")
    gateway_type: Literal["PaymentGateway", "PaypalExpressGateway"] = Field(
        "PaymentGateway", description="The gateway's type."
    )
    url: _SecretsUrl = Field(SECURE_PAYMENTS, description="Where the vendor's payment platform takes cards.")
    hold_minutes: Annotated[int, Field(ge=6, le=60)] = Field(
        10, description="For how long the nights are held while the card is charged: longer than any push may take."
    )


class BookingSyncOptions(sdk.NoOptions):
    """An account's options at BookingSync."""

    token_url: _SecretsUrl | None = Field(
        None, description="The token endpoint. Default: /oauth/token in place of the base URL's /api/v3."
    )
    redirect_uri: _Text | None = Field(
        None, description="The redirect_uri that the application was authorized with; sent with each renewal."
    )
    strict_bookings: bool = Field(
        default=False, description="Book by POST /strict_bookings, which takes the client and the booking at once."
    )
    live_quote: bool = Field(
        default=False,
        description="Ask for the price first, book with its fees and taxes, and refuse what has another price (price_changed).",
    )
    source_id: Annotated[int, Field(gt=0)] | None = Field(None, description="The source that bookings are marked with.")
    checkin_time: _TimeOfDay | None = Field(
        None, description="The time of day of arrivals, HH:MM; midnight if left out."
    )
    checkout_time: _TimeOfDay | None = Field(
        None, description="The time of day of departures, HH:MM; midnight if left out."
    )
    record_payments: bool = Field(
        default=False,
        description="Where morChannel is SELF and a transactionId is given, note the whole price as paid online, once.",
    )
    secure_payments: SecurePayments | None = Field(
        None, description="Charge the card where morChannel is PMS. Without it, no card leaves for BookingSync."
    )

    @model_validator(mode="after")
    def _one_way_to_book(self) -> Self:
        if self.strict_bookings and self.secure_payments is not None:
            raise ValueError("strictBookings and securePayments exclude each other: a strict booking cannot be held")
        return self


MEDIA_TYPE: Final = b"application/vnd.api+json"
_API: Final = "/api/v3"
_PARTS_OF_A_CREDENTIAL: Final = 3
_AUTH: Final = Auth.model_validate(
    {"form": "oauth", "oauth": {"grant": "refresh_token", "tokenUrl": "{base}/oauth/token"}}
)


class BookingSyncApi:
    """Asks; a token that is no longer taken is renewed once, and what was asked with it is asked again."""

    def __init__(self, connection: sdk.AccountConnection, options: BookingSyncOptions, clock: sdk.Clock) -> None:
        self._base_url = connection.base_url.rstrip("/")
        self._clock = clock
        token_url = options.token_url or f"{self._base_url.removesuffix(_API)}/oauth/token"
        more = {"redirect_uri": options.redirect_uri}
        self._credentials = Credentials(_AUTH, connection, clock, _has_ended, token_url, more)
        # A JSON object is to be exactly what a token is renewed with.
        is_object = connection.credential.lstrip().startswith("{")
        whole = self._credentials.renews and len(from_json(connection.credential)) == _PARTS_OF_A_CREDENTIAL
        self._unusable = is_object and not whole

    async def ask(
        self, send: sdk.Send, method: str, path: str, content: bytes = b"", *, query: str = ""
    ) -> sdk.Response:
        """The response to a request below the base URL. Raises `NotSent` and `NoResponse`."""
        if self._unusable:
            detail = "The account's credential is a JSON object without clientId, clientSecret and refreshToken."
            raise sdk.NotSent("pms_credential_invalid", detail)
        headers = [(b"Accept", MEDIA_TYPE)]
        if content:
            headers.append((b"Content-Type", MEDIA_TYPE))
        request = sdk.Request(method, f"{self._base_url}/{path}", headers, content, query=query)
        return await self._credentials.send(request, send)

    async def ask_safely(
        self, send: sdk.Send, method: str, path: str, content: bytes = b"", *, query: str = ""
    ) -> sdk.Response:
        """The same for a request that may be made any number of times: no response is no more than a delay. Raises `NotSent`."""
        try:
            return await self.ask(send, method, path, content, query=query)
        except sdk.NoResponse as failure:
            raise sdk.NotSent(failure.reason, failure.detail) from failure

    async def tried(self, send: sdk.Send, method: str, path: str, content: bytes = b"") -> int:
        """The status of the response to a request whose failure changes nothing; 0 if there is none."""
        try:
            return (await self.ask(send, method, path, content)).status_code
        except (sdk.NotSent, sdk.NoResponse):
            return 0

    def unexpected(self, response: sdk.Response) -> sdk.Deferred | sdk.InDoubt:
        if response.status_code == HTTPStatus.FORBIDDEN:
            # The vendor's word for a good token whose application was not given the scope: the operator can ask for it.
            detail = "The account's application may not do this (HTTP 403): it lacks a scope, or another one owns the booking."
            return sdk.Deferred("pms_scope_too_small", detail)
        outcome = sdk.unexpected(response, self._clock.now())
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS and isinstance(outcome, sdk.Deferred):
            reset = sdk.whole_number(response.header("x-ratelimit-reset") or "")  # a unix time
            until = None if reset is None else sdk.bounded(reset - self._clock.now().timestamp())
            return sdk.Deferred(outcome.reason, outcome.detail, outcome.retry_after_seconds or until)
        return outcome


def _has_ended(response: sdk.Response) -> bool:
    return response.status_code == HTTPStatus.UNAUTHORIZED
