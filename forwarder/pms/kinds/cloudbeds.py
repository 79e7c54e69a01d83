"""The part of Cloudbeds that cloudbeds.yaml cannot express: a note sent after the booking, and its price, read afterwards."""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

import structlog
from pydantic_core import to_json

from forwarder.pms import sdk
from forwarder.pms.mapping.adapter import Failure, MappedAdapter
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.parts import Rule
from forwarder.pms.mapping.request import Asked
from forwarder.pms.mapping.response import Tentative, id_of, may_be_ours
from forwarder.pms.mapping.values import value_at

_log = structlog.get_logger(__name__)

_UNCONFIRMED: Final = "not_confirmed"
_NOTE: Final = "reservationNote"


class CloudbedsAdapter(MappedAdapter):
    @staticmethod
    def mapping_for(mapping: PmsMapping, settings: Mapping[str, Any]) -> PmsMapping:
        shown, states = mapping.reservation, mapping.reservation.status
        if states is None or not settings["acceptUnconfirmed"]:
            return mapping
        accepting = states.model_copy(update={"confirmed": states.confirmed | {_UNCONFIRMED}})
        return mapping.model_copy(update={"reservation": shown.model_copy(update={"status": accepting})})

    @property
    def fields(self) -> sdk.FieldTable:
        if "notesField" in self._settings:  # notes go with the reservation, in a field of the account's
            return self._requests.table
        own = {"notes": sdk.SentAs((_NOTE,)), "comments": sdk.SentAs((_NOTE,), "below the notes")}
        return self._requests.table.but(own, notes=_NOTE)

    async def create(self, booking: sdk.Booking, send: sdk.Send) -> sdk.Outcome:
        """The first request makes the booking. It exists even if the next ones fail, which add a note and read its price."""
        outcome = await super().create(booking, send)
        if not isinstance(outcome, sdk.Confirmed):
            return outcome
        await self._leave_note(outcome.pms_reservation_id, booking, send)
        return await self._with_details(outcome, booking, send)

    def read(self, response: sdk.Response, booking: sdk.Booking) -> sdk.Outcome | Tentative:
        body = sdk.read_object(response) or {}
        unconfirmed = body.get("success") is True and body.get("status") == _UNCONFIRMED
        if unconfirmed and not self._settings.get("acceptUnconfirmed") and may_be_ours(self._mapping, body, booking):
            return sdk.InDoubt("pms_still_working", "The booking is made, and the property has yet to confirm it.")
        return super().read(response, booking)

    def _ruled(self, rule: Rule, response: sdk.Response, body: object, booking: sdk.Booking) -> Failure:
        """A property that the account's options name is the account's mistake."""
        if rule.becomes == "property_not_found" and "propertyId" in self._settings:
            rule = rule.model_copy(update={"becomes": "unauthorized"})
        return super()._ruled(rule, response, body, booking)

    async def find(self, booking: sdk.Booking, send: sdk.Send) -> sdk.LookupOutcome:
        """Adds the note if an earlier push made the booking and could not finish."""
        found = await super().find(booking, send)
        if not isinstance(found, sdk.Confirmed):
            return found
        found = await self._with_details(found, booking, send)
        await self._leave_note(found.pms_reservation_id, booking, send, again=True)
        return found

    async def _with_details(self, outcome: sdk.Confirmed, booking: sdk.Booking, send: sdk.Send) -> sdk.Confirmed:
        """With the record of the booking's details where they can be had, else as it is."""
        [show] = self._mapping.read_backs
        try:
            answer = await self._ask(show, Asked(booking, outcome.pms_reservation_id), send)
        except (sdk.NotSent, sdk.NoResponse):
            return outcome
        shown = value_at(answer.body, show.reservation)
        same = answer.meaning is True and id_of(self._mapping.reservation, shown) == outcome.pms_reservation_id
        return self._record(outcome, shown, booking) if same and may_be_ours(self._mapping, shown, booking) else outcome

    async def _leave_note(self, pms_id: str, booking: sdk.Booking, send: sdk.Send, *, again: bool = False) -> None:
        """A note that fails twice is given up and logged as lost; the booking remains. `again`: an earlier push may have left it;
        where nobody can tell, it is left again: twice is better than never."""
        notes = "" if "notesField" in self._settings else self._requests.notes(booking)
        if not notes:
            return
        place = {"propertyID": self._settings.get("propertyId", booking.property_id), "reservationID": pms_id}
        base, accept = self._requests.base_url, (b"Accept", b"application/json")
        if again:
            request = sdk.Request("GET", f"{base}/getReservationNotes", (accept,), query=urlencode(place))
            with suppress(sdk.NotSent, sdk.NoResponse):
                shown = sdk.read_object(await self._credentials.send(request, send)) or {}
                if any(item.get(_NOTE) == notes for item in sdk.objects(shown.get("data"))):
                    return
        headers = (accept, (b"Content-Type", b"application/x-www-form-urlencoded"))
        content = urlencode({**place, _NOTE: notes}).encode()
        request = sdk.Request("POST", f"{base}/postReservationNote", headers, content)
        for _ in range(2):
            with suppress(sdk.NotSent, sdk.NoResponse):
                response = await self._credentials.send(request, send)
                if (sdk.read_object(response) or {}).get("success") is True:
                    return
        _log.warning("note.lost", request_id=booking.reference, kind="cloudbeds", pms_reservation_id=pms_id)

    def record(self, shown: Mapping[str, Any], booking: sdk.Booking) -> dict[str, Any]:  # noqa: ARG002 - the port's
        """No currency is shown."""
        total = _number(shown.get("grandTotal", shown.get("total")))
        detailed = shown.get("balanceDetailed")  # documented as an object, or a list of them
        sums = next(iter(sdk.objects(detailed if isinstance(detailed, list) else [detailed])), {})
        rooms = (*sdk.objects(shown.get("assigned")), *sdk.objects(shown.get("unassigned")))
        rated = [(night, _amount(night.get("rate"))) for room in rooms for night in sdk.objects(room.get("dailyRates"))]
        nights = [(f"Night of {night.get('date')}", rate) for night, rate in rated if rate is not None]
        subtotal = _amount(sums.get("subTotal"))
        finances = {
            "totalPrice": total,
            "totalPaid": _number(sums.get("paid")),
            "remainingBalance": _number(shown.get("balance")),
            "basePrice": None if subtotal is None else sdk.price_part("basePrice", nights, subtotal),
            "fee": _one_line("fee", "Additional items", sums.get("additionalItems")),
            "tax": _one_line("tax", "Taxes and fees", sums.get("taxesFees")),
        }
        source = shown.get("source") or shown.get("sourceName")
        record = sdk.record_fields({"source": source, "totalPrice": total, "finances": finances})
        return record if record.get("finances") else {name: one for name, one in record.items() if name != "finances"}

    def stand_in(self, request: sdk.Request, _booking: sdk.Booking) -> sdk.StandIn | None:
        match request.method, request.url.rpartition("/")[2]:
            case "POST", "postReservation":
                made = {"success": True, "reservationID": "0", "status": "confirmed"}
                assumed = "reservationID: 0 stands for the id that Cloudbeds gives to the reservation."
                return sdk.StandIn(sdk.Response(200, (), to_json(made)), assumed)
            case "POST", "postReservationNote":
                return sdk.StandIn(sdk.Response(200, (), b'{"success":true}'), "")
            case _:
                return None


def _one_line(part: str, name: str, value: object) -> dict[str, Any] | None:
    total = _amount(value)
    return None if total is None else sdk.price_part(part, [(name, total)] if total else [], total)


def _amount(value: object) -> Decimal | None:
    """An amount, which Cloudbeds writes as a number, and in places as a text."""
    return sdk.amount(value) if isinstance(value, str) else sdk.decimal(value)


def _number(value: object) -> float | int | None:
    exact = _amount(value)
    return None if exact is None else sdk.json_number(exact)
