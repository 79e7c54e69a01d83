"""BookingSync's API as an account asks it, its responses, and the meaning of its 422."""

import re
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from pydantic import BaseModel, StrictInt, StrictStr, ValidationError
from pydantic_core import from_json

from forwarder.pms import sdk
from forwarder.pms.kinds.booking_sync.requests import FIELDS, BookingSyncOptions, in_one_language
from forwarder.pms.mapping.access import Auth, Credentials

MEDIA_TYPE: Final = b"application/vnd.api+json"
_API: Final = "/api/v3"
_PARTS_OF_A_CREDENTIAL: Final = 3
_OAUTH: Final = {"grant": "refresh_token", "tokenUrl": "{base}/oauth/token"}
_AUTH: Final = Auth.model_validate({"form": "oauth", "oauth": _OAUTH})


class BookingSyncApi:
    """Asks; a token that is no longer taken is renewed once, and what was asked with it is asked again."""

    def __init__(self, connection: sdk.AccountConnection, options: BookingSyncOptions, clock: sdk.Clock) -> None:
        self._base_url = connection.base_url.rstrip("/")
        self._clock = clock
        token_url = options.token_url or f"{self._base_url.removesuffix(_API)}/oauth/token"
        more = {"redirect_uri": options.redirect_uri}
        self._credentials = Credentials(_AUTH, connection, clock, token_url=token_url, more=more)
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


# --- responses ---

_ECHO: Final = sdk.Echo("start_at", "end_at")
_OF_THE_NIGHTS: Final = {"start_at", "end_at", "base"}
_NOT_FREE = re.compile(r"availab|overlap|taken|booked|occupied|conflict", re.IGNORECASE)
_OF_THE_RENTAL: Final = {"rental", "rental_id"}
_OF_THE_CLIENT = re.compile(r"client(\.|$)")


class SyncBooking(BaseModel):
    """A booking as BookingSync shows it, as far as we read it. Amounts are decimal texts."""

    id: StrictInt
    status: StrictStr
    external_reference: StrictStr | None = None
    links: Any = None
    booked: Any = None
    start_at: Any = None
    end_at: Any = None
    initial_rental_price: Any = None
    final_rental_price: Any = None
    final_price: Any = None
    paid_amount: Any = None
    payment_left_to_collect: Any = None
    currency: Any = None
    notes: Any = None
    payment_url: Any = None
    door_key_code: Any = None
    bookings_fees: Any = None
    bookings_taxes: Any = None

    @property
    def came_to_nothing(self) -> bool:
        """Whether it was held only, never confirmed, and surely nobody began to pay for it."""
        payments = self.links.get("payments") if isinstance(self.links, dict) else None
        return self.status == "Canceled" and self.booked is False and payments == []

    def is_ours(self, booking: sdk.Booking) -> bool:
        """Whether it carries our reference; or has the id that our create was answered with, the same days, and nobody else's
        reference."""
        if sdk.is_reference(self.external_reference, booking.reference):
            return True
        if sdk.names_another(self.external_reference or "", booking.reference):
            return False
        shown = {"start_at": self.start_at, "end_at": self.end_at}
        return str(self.id) == booking.pms_id and not _ECHO.contradicts(shown, booking)

    def may_be(self, booking: sdk.Booking) -> bool:
        """Whether nothing that it shows is another booking's."""
        rental = self.links.get("rental") if isinstance(self.links, dict) else None
        shown = {"start_at": self.start_at, "end_at": self.end_at}
        return (
            (self.external_reference is None or self.is_ours(booking))
            and (rental is None or str(rental) == booking.property_id)
            and not _ECHO.contradicts(shown, booking)
        )

    def record(self, paid_since: Decimal = Decimal(0)) -> dict[str, Any]:
        """The fields of section 2.5's record that it has. `paid_since`: what was paid after it was shown."""
        price, paid = sdk.amount(self.final_price), sdk.amount(self.paid_amount)
        left = sdk.amount(self.payment_left_to_collect)
        if paid_since:
            paid, left = (paid or Decimal(0)) + paid_since, None
        fields = {
            "totalPrice": None if price is None else sdk.json_number(price),
            "currency": self.currency,
            "notes": self.notes,
            "paymentUrl": self.payment_url,
            "codes": {"accessCode": [self.door_key_code]} if self.door_key_code else None,
            "finances": sdk.finances(price, paid, left) | {"currency": self.currency} | self._breakdown(),
        }
        return sdk.record_fields(fields)

    def _breakdown(self) -> dict[str, Any]:
        """The parts of the price, where more than the rental is in it. A tax or a fee that is part of another amount already is no
        line, so that the lines add up."""
        fees: list[tuple[str, Decimal]] = []
        taxes: list[tuple[str, Decimal]] = []
        for fee in self.bookings_fees if isinstance(self.bookings_fees, list) else ():
            match fee:
                case {"name": name, "price": str() as price, "times_booked": int() as times}:
                    each = None if fee.get("canceled_at") else sdk.amount(price)
                    if each is not None and fee.get("included_in_price", True):
                        fees.append((in_one_language(name), each * times))
        for tax in self.bookings_taxes if isinstance(self.bookings_taxes, list) else ():
            match tax:
                case {"name": name, "amount": str() as text} if not tax.get("tax_included_in_price"):
                    value = sdk.amount(text)
                    if value is not None:
                        taxes.append((in_one_language(name), value))
        initial, final = sdk.amount(self.initial_rental_price), sdk.amount(self.final_rental_price)
        discount = initial - final if initial is not None and final is not None and final < initial else Decimal(0)
        if not (fees or taxes or discount):
            return {}
        parts = {"fee": fees, "tax": taxes, "discount": [("Discount", discount)] if discount else []}
        if initial is not None:
            parts["basePrice"] = [("Room rate", initial)]
        return {part: sdk.price_part(part, lines) for part, lines in parts.items()}


class _Bookings(BaseModel, extra="allow"):
    bookings: list[SyncBooking]


def only_id_in(response: sdk.Response, name: str, status: int = HTTPStatus.CREATED) -> int | None:
    """The id of the one resource under `name` in the body; None for any other body or status."""
    match (sdk.read_object(response) or {}).get(name):
        case [{"id": int() as found}] if response.status_code == status and not isinstance(found, bool):
            return found
    return None


def bookings_in(response: sdk.Response) -> list[SyncBooking] | None:
    """The bookings in the body; None where it does not hold a list of them, or says that something failed."""
    try:
        known = _Bookings.model_validate_json(response.json_text)
        return None if sdk.says_no(known.model_extra) else known.bookings
    except ValidationError:
        return None


def errors_in(response: sdk.Response) -> dict[str, str]:
    """The errors of a 422 by field; empty if it has another form."""
    body = sdk.read_object(response) or {}
    errors = body.get("errors", body)
    if not isinstance(errors, dict):
        return {}
    each = ((str(field), said if isinstance(said, list) else [said]) for field, said in errors.items())
    return {field: ", ".join(map(str, said)) for field, said in each}


def refusal_in(response: sdk.Response) -> tuple[str, str]:
    """The code of `REFUSALS` for a 422, and BookingSync's messages, each with its field and the caller's name of that."""
    messages = errors_in(response)
    said = "; ".join(f"{field}: {message}" for field, message in messages.items())
    detail = "; ".join(f"{FIELDS.in_callers_words(field)}: {message}" for field, message in messages.items())
    if any(_NOT_FREE.search(messages[field]) for field in messages.keys() & _OF_THE_NIGHTS):
        return "room_unavailable", detail
    for words, code in sdk.PRICE_AND_CARD:
        if words.search(said):
            return code, detail
    if messages.keys() & _OF_THE_RENTAL:
        return "property_not_found", detail
    return ("guest_refused" if any(map(_OF_THE_CLIENT.match, messages)) else "pms_refused"), detail


_PER_PAGE: Final = 100
_MOST_PAGES: Final = 20


async def look_up(api: BookingSyncApi, booking: sdk.Booking, send: sdk.Send, *, strict: bool) -> sdk.LookupOutcome:
    """Looks through what ends after the arrival and starts before the departure, cancelled ones too, page by page. `strict`: it may
    have been made as a strict booking."""
    asked: dict[str, Any] = {
        "rental_id": booking.property_id,
        "from": booking.arrival.isoformat(),
        "until": booking.departure.isoformat(),
        "include_canceled": "true",
        "per_page": _PER_PAGE,
    }
    shown: list[SyncBooking] = []
    for page in range(1, _MOST_PAGES + 1):
        response = await api.ask(send, "GET", "bookings", query=urlencode({**asked, "page": page}))
        bookings = bookings_in(response) if response.status_code == HTTPStatus.OK else None
        if bookings is None:
            return sdk.harmless(api.unexpected(response))
        repeated = bool(bookings) and {each.id for each in bookings} <= {each.id for each in shown}
        shown += bookings
        booked = {each.id: each for each in bookings if each.is_ours(booking) and each.status == "Booked"}
        if booked:
            first, *others = booked
            return sdk.Confirmed(str(first), booked[first].record(), doubles=tuple(map(str, others)))
        pages = sdk.whole_number(response.header("x-total-pages") or "")
        if repeated or (not bookings and page < (pages or 0)):
            return sdk.harmless(sdk.not_understood(response))
        # Where the PMS does not say how many there are, an empty page ends the list.
        if not bookings or page == pages:
            return _not_booked(shown, booking, strict=strict)
    return sdk.Deferred("pms_lists_too_much", f"The PMS lists more than {_MOST_PAGES * _PER_PAGE} bookings.")


def _not_booked(shown: list[SyncBooking], booking: sdk.Booking, *, strict: bool) -> sdk.Absent | sdk.Deferred:
    """What a list without a confirmed booking of ours means. A hold that was neither confirmed nor paid for does not count."""
    others = [found for found in shown if not found.is_ours(booking)]
    if not all("external_reference" in found.model_fields_set for found in others):
        detail = "The account's credential may not see the references of bookings; it needs the scope bookings_read."
        return sdk.Deferred("pms_scope_too_small", detail)
    if strict and any(found.external_reference is None and _may_be_on(found, booking) for found in others):
        # BookingSync does not document whether a strict booking keeps its reference.
        detail = "A booking without a reference is on these nights, and may be this one."
        return sdk.Deferred("pms_reference_not_shown", detail)
    ours = [found for found in shown if found.is_ours(booking) and not found.came_to_nothing]
    if not ours:
        return sdk.Absent()
    if all(found.status == "Canceled" for found in ours):
        return sdk.Deferred(sdk.CANCELLED_IN_PMS, "The PMS made the booking, and it was cancelled there since.")
    return sdk.Deferred("pms_still_working", "The PMS holds the nights for the booking and has not confirmed it yet.")


def _may_be_on(found: SyncBooking, booking: sdk.Booking) -> bool:
    """Whether it has some of the nights of `booking`, or does not say which nights it has."""
    arrival, departure = sdk.day(found.start_at), sdk.day(found.end_at)
    if arrival is None or departure is None:
        return True
    return arrival < booking.departure and departure > booking.arrival
