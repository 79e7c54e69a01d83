"""The schemas of the requests, as published: those that bodies are validated with, and what each field means."""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from forwarder.reservation.bulk import BookingEngineItem, GeneralItem
from forwarder.reservation.cancellation import CancellationBody
from forwarder.reservation.request import CURRENCY, CURRENCY_DECIMALS, MAX_NIGHTS, BookingEngineRequest, GeneralRequest
from tools.contracts.json_schema import schema_of

_ABOUT: Final = {
    "BookingEngineRequest": "What a direct-booking website, or its provider, submits. Fields that are not named here are dropped.",
    "GeneralRequest": "The smaller form, mostly optional. Fields that are not named here are dropped.",
    "BookingEngineItem": "One reservation of a bulk, as the booking-engine operation takes it.",
    "GeneralItem": "One reservation of a bulk, as the general operation takes it.",
    "CancellationBody": "What may be said with a cancellation. The body may be left out.",
    "Guest": "The guest. Only the phone may be missing.",
    "GeneralGuest": "The guest, as far as known.",
    "Address": "The guest's address.",
    "GeneralAddress": "The guest's address, as far as known. The country is free text.",
    "CardDetails": "A payment card. It is sealed on arrival: nothing but the worker that pushes the reservation can read it.",
}
_FIELDS: Final = {
    "morChannel": "Who is Merchant of Record. `SELF`: the host or the booking engine takes the payment; `PMS`: the PMS does.",
    "propertyId": "The property's identifier in the PMS.",
    "roomId": "The identifier of the room, or room type, in the PMS. Where the PMS has none: the same as `propertyId`.",
    "arrivalDate": "The first night, `YYYY-MM-DD`.",
    "departureDate": f"The day of departure, `YYYY-MM-DD`: 1 to {MAX_NIGHTS} nights after `arrivalDate`.",
    "arrivalEstimatedTime": "When the guest is expected, such as `15:00`.",
    "departureEstimatedTime": "When the guest is expected to leave, such as `11:00`.",
    "guest": "Who comes.",
    "numberOfGuests": "All guests. Where it is optional, 0 says nothing.",
    "numberOfAdults": "The adults among the guests.",
    "numberOfChildren": "The children among the guests.",
    "numberOfInfants": "The infants among the guests.",
    "numberOfPets": "The pets that come along.",
    "totalPrice": "The price of the whole stay, with no more decimals than its currency has; without a currency, than any has (4). "
    "What arithmetic in floating point adds, less than a millionth, is rounded away.",
    "currency": "ISO 4217. Small letters are taken, too.",
    "notes": "Notes on the stay.",
    "comments": "Further remarks on the stay.",
    "status": "`CONFIRMED`, in any case of letters: what comes in here is always a confirmed reservation.",
    "paymentProviderKey": "A token of the card-payment provider.",
    "paymentProviderId": "The payment provider's identifier. For an integration of kind `website-builder`: the website's.",
    "transactionId": "The payment's identifier at the host's payment gateway.",
    "cardDetails": "Needed where the integration is of kind `booking-sync` and `morChannel` is `PMS`.",
    "promotionCode": "The promotion that the price is from.",
    "name": "The full name.",
    "firstName": "The first name.",
    "lastName": "The last name.",
    "email": "The e-mail address.",
    "phone": "The telephone number.",
    "address": "Where the guest lives.",
    "line1": "The first line of the address.",
    "line2": "The second line; may be empty.",
    "postalCode": "The postal code.",
    "city": "The city.",
    "state": "The state or province.",
    "country": "ISO 3166-1 alpha-2 in the booking-engine operation; free text in the general one.",
    "cardNumber": "The card's number.",
    "cardHolderName": "The name on the card.",
    "expiryMonth": "The month in which the card expires, such as `09`.",
    "expiryYear": "The year in which the card expires, such as `2031`.",
    "cvv": "The card verification value. It is never stored unsealed, and erased with the final outcome.",
    "operation": "Which operation takes it.",
    "reservation": "What that operation takes as its body.",
    "idempotencyKey": "What the `Idempotency-Key` is to the single operations; here as it is, without quotes of its own.",
    "deadlineSeconds": "What `Forward-Deadline` is to the single operations; that header counts where this is left out.",
    "reason": "Why it is cancelled; shown with the cancellation.",
}
_CURRENCY: Final = {
    "type": "string",
    "description": "A currency code of ISO 4217 that is in use.",
    "enum": sorted(CURRENCY_DECIMALS),
}


def request_schemas(ref: str, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
    """The schema of each request, and of each part of one, by name: as it is taken (`validation`) or published (`serialization`).
    `ref` is where a reference finds them."""
    return _schemas((BookingEngineRequest, GeneralRequest, CancellationBody), ref, mode)


def body_schemas(ref: str) -> dict[str, Any]:
    """As `request_schemas`, and those of the items of a bulk, which travels as its requests."""
    items = _schemas((BookingEngineItem, GeneralItem), ref)
    return dict(sorted({**request_schemas(ref), **items, "BulkItem": _either_item(ref)}.items()))


def _schemas(models: Iterable[type[BaseModel]], ref: str, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for model in models:
        parts[model.__name__] = schema_of(model, parts, ref=ref, mode=mode)
    described = {name: _described(name, _plain(part, ref)) for name, part in parts.items()}
    return dict(sorted({**described, "Currency": _CURRENCY}.items()))


def _either_item(ref: str) -> dict[str, Any]:
    items = {"booking-engine": f"{ref}BookingEngineItem", "general": f"{ref}GeneralItem"}
    return {
        "description": "One reservation of a bulk.",
        "oneOf": [{"$ref": item} for item in items.values()],
        "discriminator": {"propertyName": "operation", "mapping": items},
    }


def _described(name: str, schema: MutableMapping[str, Any]) -> Mapping[str, Any]:
    fields = {field: {"description": _FIELDS[field], **rest} for field, rest in schema["properties"].items()}
    return {**schema, "description": _ABOUT[name], "properties": fields}


def _plain(schema: Any, ref: str) -> Any:
    """The same, plainer: one kind of number where any will do, and the currencies by reference."""
    if isinstance(schema, list):
        return [_plain(part, ref) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("pattern") == CURRENCY:
        return {"$ref": f"{ref}Currency"}
    types = [branch.get("type") for branch in schema.get("anyOf", ())]
    if "number" in types:
        schema = {**schema, "anyOf": [branch for branch in schema["anyOf"] if branch.get("type") != "integer"]}
    return {name: _plain(part, ref) for name, part in schema.items()}
