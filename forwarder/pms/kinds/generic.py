"""Kind `generic`: any PMS that implements the open contract (schemas/pms-openapi.json).

POST {base_url}/reservations                → 201, or 200 for a key that was seen before, with the reservation
GET  {base_url}/reservations?reference=R    → 200 {"data": […]}
DELETE {base_url}/reservations/{id}         → 204, also when repeated

In code, not a page: it sends requests unchanged, and a page that names every field takes 25 times the CPU for a create.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from http import HTTPStatus
from typing import Any, ClassVar, Final

from pydantic import Field, ValidationError, model_validator

from forwarder.pms import sdk
from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.mapping.model import MappingOption

# The codes of the contract.
STILL_WORKING: Final = "request_in_progress"  # an earlier one, with the same key
KEY_REUSED: Final = "idempotency_key_reused"  # with another body
NOTHING_DONE: Final = "nothing_done"  # in a 503, which without it may come from a gateway while the PMS is at work
NOT_THERE: Final = "reservation_not_found"  # in a 404 or 410, which without it may come from any server on the way

_REFUSING = {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
_NO = {"REJECTED", "REFUSED", "DECLINED"}
_CANCELLED = {"CANCELLED", "CANCELED"}

FIELDS: Final = sdk.FieldTable({name: sdk.SentAs((name,)) for name in sdk.SPECIFIED}, notes="notes")
"""The open contract takes a request unchanged."""


class GenericAdapter:
    capabilities: ClassVar[sdk.Capabilities] = sdk.Capabilities(
        idempotent_create=True, find_by_reference=True, cancel=True, names_reference=True
    )
    limits: ClassVar[sdk.Limits] = sdk.Limits()
    options: ClassVar[type[sdk.NoOptions]] = sdk.NoOptions
    fields: ClassVar[sdk.FieldTable] = FIELDS

    def __init__(self, connection: sdk.AccountConnection, clock: sdk.Clock) -> None:
        self._base_url, self._credential = connection.base_url.rstrip("/"), connection.credential
        self._clock = clock

    async def create(self, booking: sdk.Booking, send: sdk.Send) -> sdk.Outcome:
        base = self._base(booking)
        if base is None:
            return sdk.refusal(booking, "property_not_found", "No address can hold the identifier.")
        key = (b"Idempotency-Key", b'"%s"' % booking.reference.encode())
        headers = [*self._headers, (b"Content-Type", b"application/json"), key]
        fields = {**booking.fields, "reference": booking.reference}
        price = fields.get("totalPrice")
        if isinstance(price, Decimal):  # would be serialized as a text
            fields["totalPrice"] = sdk.json_number(price)
        if booking.card is not None:
            fields["cardDetails"] = booking.card.model_dump(by_alias=True, exclude_none=True)
        response = await send(sdk.Request("POST", f"{base}/reservations", headers, sdk.json_text(fields)))
        if response.status_code not in (201, 200):  # plain numbers: a look-up of HTTPStatus is slow in Python 3.11
            return await self._not_made(response, booking, send)
        body = sdk.read_object(response)
        confirmed = None if body is None or sdk.says_no(body) else _confirmed(body, booking)
        if body is None or confirmed is None:
            return sdk.not_understood(response, None if body is None else sdk.identifier(body.get("id")))
        match _status(body):
            case "CONFIRMED":
                return confirmed
            case status if status in _NO | _CANCELLED:
                said = _words(body) or f"The PMS answered with status {status}."
                return sdk.refusal(booking, str(body.get("code")), said)
            case _:
                return sdk.not_understood(response)

    async def find(self, booking: sdk.Booking, send: sdk.Send) -> sdk.LookupOutcome:
        base = self._base(booking)
        if base is None:
            return sdk.Absent()
        query = f"reference={sdk.path_segment(booking.reference)}"
        response = await send(sdk.Request("GET", f"{base}/reservations", self._headers, query=query))
        if response.status_code != HTTPStatus.OK:
            return sdk.harmless(sdk.unexpected(response, self._clock.now()))
        # Absent only by an empty list or a refused reservation. A PMS that shows other reservations did not search.
        body = sdk.read_object(response) or {}
        items = body.get("data")
        if items == []:
            return sdk.harmless(sdk.not_understood(response)) if sdk.says_no(body) else sdk.Absent()
        ours = [item for item in sdk.objects(items) if sdk.is_reference(item.get("reference"), booking.reference)]
        held = [*filter(None, (_confirmed(item, booking) for item in ours if _status(item) == "CONFIRMED"))]
        if held:
            others = {each.pms_reservation_id for each in held} - {held[0].pms_reservation_id}
            return replace(held[0], doubles=tuple(sorted(others)))
        statuses = {_status(item) for item in ours}
        if statuses & _CANCELLED:
            return sdk.Deferred(sdk.CANCELLED_IN_PMS, "The PMS made the reservation, and it was cancelled there since.")
        return sdk.Absent() if statuses and statuses <= _NO else sdk.harmless(sdk.not_understood(response))

    async def cancel(self, booking: sdk.Booking, pms_reservation_id: str, send: sdk.Send) -> sdk.CancelOutcome:
        base, identifier_ = self._base(booking), sdk.path_segment(pms_reservation_id)
        if base is None or identifier_ is None:
            return sdk.refusal(booking, "cancellation_refused", "No address can hold the identifier.")
        response = await send(sdk.Request("DELETE", f"{base}/reservations/{identifier_}", self._headers))
        body = sdk.read_object(response) or {}
        status = response.status_code
        # A 200 without the status of the reservation, or a bare 404, may come from any server and proves nothing.
        gone = status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE) and body.get("code") == NOT_THERE
        if status == HTTPStatus.NO_CONTENT or gone or (status == HTTPStatus.OK and _status(body) in _CANCELLED):
            return sdk.Cancelled()
        if status in _REFUSING:
            said = _words(body)
            return sdk.Cancelled() if sdk.cancelled_before(said) else sdk.refusal(booking, "cancellation_refused", said)
        return sdk.harmless(sdk.unexpected(response, self._clock.now()))

    @cached_property
    def _headers(self) -> sdk.Headers:
        return (*sdk.bearer(self._credential), (b"Accept", b"application/json"))

    def _base(self, _booking: sdk.Booking) -> str | None:
        """The base URL of the reservations; None if no URL can express it."""
        return self._base_url

    async def _not_made(self, response: sdk.Response, booking: sdk.Booking, send: sdk.Send) -> sdk.Outcome:
        """A 400 or 404, which any server on the way may send, is the PMS's refusal only with one of our codes."""
        problem = sdk.read_object(response) or {}
        code, status = str(problem.get("code")), response.status_code
        if code == STILL_WORKING:
            return sdk.InDoubt("pms_still_working", "The PMS is still at an earlier push of this reservation.")
        if code == KEY_REUSED:
            # An earlier push, serialized by another version of the forwarder, arrived.
            found = await self.find(booking, send)
            if isinstance(found, sdk.Confirmed):
                return found
            detail = "The PMS had this reservation before, in other words, and does not show it."
            return sdk.InDoubt("pms_knows_key", detail)
        media_type = (response.header("content-type") or "").partition(";")[0].strip().lower()
        says_nothing_done = code == NOTHING_DONE and media_type == "application/problem+json"
        if says_nothing_done and status == HTTPStatus.SERVICE_UNAVAILABLE:
            detail = "The PMS is out of service, and says that it did nothing (HTTP 503)."
            return sdk.Deferred("pms_unavailable", detail, sdk.retry_after(response, self._clock.now()))
        may_refuse = status in (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
        if status in _REFUSING or (may_refuse and code in sdk.REFUSALS):
            said = _words(problem)
            unsaid = None if code in sdk.REFUSALS else sdk.never_a_no(said)
            return sdk.outcome_of_message(unsaid or code, said, booking)
        return sdk.unexpected(response, self._clock.now())


def _confirmed(body: Mapping[str, Any], booking: sdk.Booking) -> sdk.Confirmed | None:
    """The reservation in `body`; None if it has no id, or is not ours."""
    pms_id, reference = sdk.identifier(body.get("id")), body.get("reference")
    named = sdk.is_reference(reference, booking.reference)
    if pms_id is None or not (named or reference is None):
        return None
    return sdk.Confirmed(pms_id, sdk.record_fields(body), named=named)


def _status(body: Mapping[str, Any]) -> str:
    """In capitals; CONFIRMED if absent or null, empty if not a text."""
    status = body.get("status")
    return "CONFIRMED" if status is None else status.upper() if isinstance(status, str) else ""


def _words(problem: Mapping[str, Any]) -> str:
    title, detail = problem.get("title"), problem.get("detail")
    return next((text for text in (detail, title) if isinstance(text, str) and text.strip()), "")


class WebsiteBuilderAdapter(GenericAdapter):
    """Kind `website-builder`: pushes to the website that the booking names. The rules require one."""

    fields: ClassVar[sdk.FieldTable] = FIELDS.but({"paymentProviderId": sdk.SentAs(("path", "paymentProviderId"))})

    def _base(self, booking: sdk.Booking) -> str | None:
        website = sdk.path_segment(booking.website_id or "")
        return None if website is None else f"{self._base_url}/websites/{website}"


class GenericOptions(sdk.NoOptions):
    mapping: MappingOption | None = None
    """The mapping of the PMS, as a table or as the text of a YAML document. Default: the open contract."""
    settings: Mapping[str, str | int | float | bool] = Field(default_factory=dict)
    """The account's values for the options that the mapping declares."""

    @model_validator(mode="after")
    def _fit_the_mapping(self) -> "GenericOptions":
        declared = {} if self.mapping is None else self.mapping.options
        if unknown := sorted(self.settings.keys() - declared.keys()):
            raise ValueError(f"settings: the mapping declares no option {', '.join(unknown)}")
        if lacking := sorted(name for name, one in declared.items() if one.required and name not in self.settings):
            raise ValueError(f"settings: the mapping wants {', '.join(lacking)}")
        return self


def _adapter(connection: sdk.AccountConnection, clock: sdk.Clock) -> sdk.Adapter:
    options = GenericOptions.model_validate(connection.options)
    if options.mapping is None:
        return GenericAdapter(connection, clock)
    return MappedAdapter(connection, options.mapping, clock, options.settings)


def _limits(options: Mapping[str, Any]) -> sdk.Limits:
    """The limits of the mapping; none if it cannot be read, which `check_options` reports."""
    try:
        mapping = GenericOptions.model_validate(options).mapping
    except ValidationError:
        return GenericAdapter.limits
    return GenericAdapter.limits if mapping is None else mapping.published_limits


GENERIC: Final = sdk.Kind(
    _adapter, GenericOptions, GenericAdapter.capabilities, GenericAdapter.limits, FIELDS, limits_by=_limits
)
