"""The part of Beds24 that beds24.yaml cannot express: several bookings in one request, each with its own result."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.pms import sdk
from forwarder.pms.accounts import page_text
from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.mapping.document import load_document
from forwarder.pms.mapping.model import PmsMapping
from forwarder.pms.mapping.request import Asked
from forwarder.pms.mapping.response import Tentative, body_of
from forwarder.pms.mapping.values import DoesNotFit

_FIELD: Final = "custom10"


class Beds24Adapter(MappedAdapter):
    @staticmethod
    def mapping_for(mapping: PmsMapping, settings: Mapping[str, Any]) -> PmsMapping:
        field = settings["referenceField"]
        return mapping if field == _FIELD else _with_field(field)

    async def create(self, booking: sdk.Booking, send: sdk.Send) -> sdk.Outcome:
        return (await self.create_many([booking], send))[0]

    async def create_many(self, bookings: Sequence[sdk.Booking], send: sdk.Send) -> Sequence[sdk.Outcome]:
        """One request for all bookings that can be written as Beds24 wants them; the others are refused unsent."""
        refused: dict[str, sdk.Outcome] = {}
        asked: list[tuple[sdk.Booking, sdk.Request]] = []
        for booking in bookings:
            try:
                asked.append((booking, self._requests.build(self._mapping.create, Asked(booking))))
            except DoesNotFit as misfit:
                refused[booking.reference] = self.misfit(misfit, booking)
        made = iter(await self._post(asked, send) if asked else ())
        return [refused.get(booking.reference) or next(made) for booking in bookings]

    async def _post(self, asked: Sequence[tuple[sdk.Booking, sdk.Request]], send: sdk.Send) -> Sequence[sdk.Outcome]:
        """The outcome of each booking. A response that is not about each of them means the same for all."""
        items = [item for _, request in asked for item in from_json(request.content)]
        response = await self._credentials.send(replace(asked[0][1], content=to_json(items)), send)
        outcomes: list[sdk.Outcome] = []
        of_all = [self._put_off_by_status(response, booking) for booking, _ in asked]
        said = body_of(response) if response.status_code in (HTTPStatus.OK, HTTPStatus.CREATED) else None
        if isinstance(said, list) and len(said) == len(asked):
            unclear = sdk.InDoubt("pms_answer_not_understood", "The PMS does not say whether it made the booking.")
            for item, (booking, _), by_status in zip(said, asked, of_all, strict=True):
                outcome = self.read(replace(response, content=to_json([item])), booking)
                outcomes.append(unclear if isinstance(outcome, Tentative) or outcome == by_status else outcome)
            return outcomes
        in_doubt = isinstance(of_all[0], sdk.InDoubt)
        if response.status_code == HTTPStatus.BAD_REQUEST and len(asked) > 1 and not in_doubt:
            # Any of them may be to blame: each is asked for again on its own.
            for one in asked:
                try:
                    outcomes += await self._post([one], send)
                except (sdk.NotSent, sdk.NoResponse) as failure:
                    outcomes.append(sdk.outcome_of(failure))
            return outcomes
        return of_all

    def refusal(self, code: str, said: str, booking: sdk.Booking) -> sdk.Rejected:
        names_no_room = code == "room_not_found" and booking.room_id == booking.property_id
        return super().refusal("property_not_found" if names_no_room else code, said, booking)

    def record(self, shown: Mapping[str, Any], booking: sdk.Booking) -> dict[str, Any]:
        """A tax of 0 is what Beds24 shows where it knows of none."""
        return super().record({name: value for name, value in shown.items() if name != "tax" or value}, booking)

    def words(self, body: Any) -> str:
        """The errors of an item, each after its field in the caller's words."""
        errors = body[0].get("errors") if isinstance(body, list) and body and isinstance(body[0], dict) else None
        said = [(_text(fault.get("field")), _text(fault.get("message"))) for fault in sdk.objects(errors)]
        in_words = self.fields.in_callers_words
        return "; ".join(f"{in_words(field)}: {message}" if field else message for field, message in said)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


@cache
def _with_field(name: str) -> PmsMapping:
    """The page for accounts that keep our reference in another custom field."""
    page = page_text("beds24").replace(f" {_FIELD}: reference", f" {name}: reference")
    return load_document(page.replace(f": {_FIELD}\n", f": {name}\n"), PmsMapping)
