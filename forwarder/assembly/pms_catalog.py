"""The kinds of PMS, their capabilities and sample requests, for `forwarder adapters`."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from forwarder.pms.accounts import traits_of
from forwarder.pms.fields import becomes
from forwarder.pms.mapping.adapter import MappedKind
from forwarder.pms.mapping.model import PmsMapping, counted
from forwarder.pms.port import AccountConnection, BadOptions
from forwarder.pms.registry import registered
from forwarder.pms.rehearsal import table_of, trial_run
from forwarder.pms.sdk import AdapterKind
from forwarder.process.clock import SystemClock
from forwarder.reservation.booking import booking_of
from forwarder.reservation.outcome import Rejected
from forwarder.reservation.request import CardDetails

_WORDS = {"string": "text", "array": "list", "object": "table", "integer": "whole number", "boolean": "true or false"}


def pms_kinds() -> Sequence[str]:
    """The kinds of PMS that an account may be of."""
    return sorted(registered().kinds)


def adapters() -> Sequence[Mapping[str, Any]]:
    """Every kind with its capabilities, limits, options and distribution. Then those that could not be loaded, with an `error`."""
    registry = registered()
    there = [
        {"kind": kind, "from": registry.origins.get(kind, "built in"), **_described(registry.kinds[kind])}
        for kind in sorted(registry.kinds)
    ]
    return [*there, *({"kind": one.kind, "from": one.distribution, "error": one.error} for one in registry.not_loaded)]


def fields(kind: str, options: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What happens to each field of a request for an account of that kind and options. Raises `UnknownKind` and `BadOptions`."""
    table = table_of(AccountConnection("", kind, "", "", options=options), SystemClock())
    return [{"field": name, "becomes": becomes(fate, table.notes)} for name, fate in table.fates.items()]


def _described(adapter: AdapterKind) -> Mapping[str, Any]:
    can, limits = adapter.capabilities, adapter.limits
    evidence: Mapping[str, Any] | None = None  # a kind with code of its own has none
    if isinstance(adapter, MappedKind):  # how many of the mapping's statements rest on each source
        mapping = adapter.mapping
        evidence = {"experimental": mapping.experimental, "statements": counted(mapping.evidence, mapping.statements)}
    return {
        "capabilities": {
            "idempotentCreate": can.idempotent_create,
            "findByReference": can.find_by_reference,
            "cancel": can.cancel,
            "mostPerCreate": can.max_per_create,
        },
        "limits": [{"requests": limit.requests, "seconds": limit.seconds} for limit in limits.each],
        "requestsPerPush": limits.requests_per_push,
        "evidence": evidence,
        "options": list(_options(adapter.options)),
    }


def try_out(kind: str, base_url: str | None, options: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The requests for a sample reservation, changed by `given`, without sending them. The base URL is the mapping's by default.
    Raises `UnknownKind` and `BadOptions`."""
    mapping = mapping_of(kind, options)
    address = base_url or (None if mapping is None else mapping.base_url) or "https://pms.example"
    connection = AccountConnection("", kind, address, "", options=options)
    card = CardDetails.model_validate(_SAMPLE_CARD)
    sample = booking_of(traits_of(kind), _SAMPLE_REFERENCE, {**_SAMPLE, **given}, card)
    rehearsal, tried = asyncio.run(trial_run(connection, sample, SystemClock()))
    site = f"{urlsplit(address).scheme}://{urlsplit(address).netloc}"
    requests = [
        {"step": step, "method": shown.method, "url": site + shown.path, "headers": headers, "body": shown.body}
        for step, shown, headers in tried
    ]
    refused = rehearsal.outcome.problem.detail if isinstance(rehearsal.outcome, Rejected) else None
    return {"requests": requests, "assumed": list(rehearsal.assumed), "refused": refused}


def base_url_of_kind(kind: str, options: Mapping[str, Any]) -> str:
    """The base URL of an account of that kind with these options. Raises `BadOptions` if its mapping has none."""
    mapping = mapping_of(kind, options)
    if mapping is None or mapping.base_url is None:
        raise BadOptions("Say where the PMS is, by --base-url.")
    return mapping.base_url


def mapping_of(kind: str, options: Mapping[str, Any]) -> PmsMapping | None:
    """The mapping of an account of that kind with these options; None for a kind in code, or if it cannot be read."""
    found = registered().kinds.get(kind)
    if isinstance(found, MappedKind):
        return found.mapping
    if found is None or "mapping" not in options:
        return None
    try:
        mapping = getattr(found.options.model_validate(options), "mapping", None)
    except ValidationError:
        return None
    return mapping if isinstance(mapping, PmsMapping) else None


_SAMPLE_REFERENCE: Final = "rsv_" + "samplereference" * 2 + "aa"
_SAMPLE_CARD: Final = {
    "cardNumber": "4111 1111 1111 1111",
    "cardHolderName": "Maria Gonzalez",
    "expiryMonth": "07",
    "expiryYear": "2031",
    "cvv": "826",
}
_SAMPLE: Final[Mapping[str, Any]] = {
    "propertyId": "5001",
    "roomId": "5001",
    "arrivalDate": "2031-03-01",
    "departureDate": "2031-03-04",
    "guest": {
        "name": "Maria Gonzalez",
        "email": "maria@example.com",
        "phone": "+34 600 111 222",
        "address": {"line1": "Calle Mayor 7", "postalCode": "28013", "city": "Madrid", "country": "ES"},
    },
    "numberOfGuests": 3,
    "numberOfAdults": 2,
    "numberOfChildren": 1,
    "totalPrice": 450.35,
    "currency": "EUR",
    "notes": "Late arrival",
    "promotionCode": "WINTER",
}


def _options(model: type[BaseModel]) -> Iterator[Mapping[str, Any]]:
    schema = model.model_json_schema(by_alias=True)
    parts, required = schema.get("$defs", {}), schema.get("required", ())
    for name, option in schema.get("properties", {}).items():
        forms = list(_forms(option, parts))
        types = dict.fromkeys(_WORDS.get(form["type"], form["type"]) for form in forms if "type" in form)
        yield {
            "name": name,
            "type": " or ".join(types),
            "choices": [value for form in forms for value in form.get("enum", ())],
            "required": name in required,
            "default": option.get("default"),
            "description": option.get("description", ""),
        }


def _forms(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every form that a value may have, except null: leaving the option out means the same."""
    if "$ref" in schema:
        yield from _forms(parts[schema["$ref"].rpartition("/")[2]], parts)
    elif choices := schema.get("anyOf") or schema.get("oneOf"):
        for choice in choices:
            yield from _forms(choice, parts)
    elif schema.get("type") != "null":
        yield schema
