"""The open PMS contract as OpenAPI 3.1: what a PMS implements to be reached as kind `generic` or `website-builder`. Pure.

Built from the models that requests are validated with and answers are read with, so that the two cannot drift apart.
Published as schemas/pms-openapi.json.
"""

from typing import Any, Final

from pydantic import BaseModel

from forwarder.pms.answer import RecordFields
from forwarder.pms.generic import KEY_REUSED, REFUSALS, STILL_WORKING
from forwarder.reservation.request import BookingEngineRequest, GeneralRequest

_VERSION: Final = "1.0.0"
_REF: Final = "#/components/schemas/"

_ABOUT: Final = """\
What a property management system (PMS) implements so that the reservation forwarder can book in it.

The forwarder sends each reservation once, with an `Idempotency-Key`. When it cannot know whether a request took effect (a
time-out, a lost connection, a 5xx), it sends the same request with the same key again, for up to a day or more. So:

- the same key makes at most one reservation, for ever; a key that was seen before is answered 200 with the reservation as it was
  first answered, whatever has become of the room since;
- a request that comes while an earlier one with its key is still being worked on is answered 409 with code `request_in_progress`;
- a status of 200, 201, 409 or 422 is final, and so are 400 and 404 with a problem whose `code` is one of those listed here; 429,
  503 and the rest of 4xx say that nothing was done, and the request comes again later; any other leaves the request in doubt.

Answers are JSON of at most 1 MiB, given within 30 seconds; redirects are not followed."""


def open_pms_contract() -> dict[str, Any]:
    """The document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Open PMS contract",
            "version": _VERSION,
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [
            {
                "url": "{base_url}",
                "description": "Kind `generic`: the base URL of the integration account.",
                "variables": {"base_url": {"default": "https://pms.example/api"}},
            },
            {
                "url": "{base_url}/websites/{websiteId}",
                "description": "Kind `website-builder`: the website is the one that the request names in `paymentProviderId`.",
                "variables": {"base_url": {"default": "https://pms.example/api"}, "websiteId": {"default": "1"}},
            },
        ],
        "security": [{"credential": []}],
        "paths": {"/reservations": {"post": _create(), "get": _find()}},
        "components": {
            "securitySchemes": {
                "credential": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The integration account's credential.",
                }
            },
            "schemas": _schemas(),
            "headers": {
                "Retry-After": {
                    "description": "When to come again: seconds, or an HTTP date.",
                    "schema": {"type": "string"},
                }
            },
            "responses": {
                "Later": {
                    "description": "Nothing was done. The request comes again, not before `Retry-After`.",
                    "headers": {"Retry-After": {"$ref": "#/components/headers/Retry-After"}},
                },
                "NotLetIn": {"description": "The credential is not accepted. Nothing was done."},
            },
        },
    }


def _create() -> dict[str, Any]:
    return {
        "operationId": "createReservation",
        "summary": "Make a reservation",
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": True,
                "description": "The reference as a quoted string (RFC 8941).",
                "schema": {"type": "string", "pattern": '^"[\\x20-\\x7e]+"$'},
                "example": '"rsv_k5zq4c3m2y7n6x5w4v3u2t1s7r6q5p4o"',
            }
        ],
        "requestBody": {"required": True, "content": _json("ReservationRequest")},
        "responses": {
            "201": {"description": "The reservation was made.", "content": _json("Reservation")},
            "200": {"description": "It was made before, under the same key.", "content": _json("Reservation")},
            "400": _refusal("The request is not understood. Final with a problem whose `code` is listed."),
            "401": {"$ref": "#/components/responses/NotLetIn"},
            "404": _refusal("The property or the room is not known. Final with a problem whose `code` is listed."),
            "409": _refusal("No: the room is taken, the card was refused, and the like."),
            "422": _refusal("No: the reservation breaks a rule of the PMS, or the key came before with another body."),
            "429": {"$ref": "#/components/responses/Later"},
            "503": {"$ref": "#/components/responses/Later"},
        },
    }


def _find() -> dict[str, Any]:
    answer = {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "array", "items": {"$ref": f"{_REF}Reservation"}}},
    }
    return {
        "operationId": "findReservations",
        "summary": "Find the reservation that carries a reference",
        "parameters": [
            {
                "name": "reference",
                "in": "query",
                "required": True,
                "description": "Only reservations with this very reference are to be answered.",
                "schema": {"type": "string"},
            }
        ],
        "responses": {
            "200": {
                "description": "Those that there are, cancelled and refused ones too. Each has its `reference`.",
                "content": {"application/json": {"schema": answer}},
            },
            "401": {"$ref": "#/components/responses/NotLetIn"},
            "429": {"$ref": "#/components/responses/Later"},
            "503": {"$ref": "#/components/responses/Later"},
        },
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF + schema}}}


def _refusal(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/problem+json": {"schema": {"$ref": f"{_REF}Problem"}}}}


def _schemas() -> dict[str, Any]:
    parts: dict[str, Any] = {}
    engine, general, record = (_schema(model, parts) for model in (BookingEngineRequest, GeneralRequest, RecordFields))
    # Both operations' fields, as loose as the looser of the two: a PMS gets either.
    fields = engine["properties"] | general["properties"]
    request = {
        "type": "object",
        "description": "A reservation as the caller gave it, in the forms in which it came. Fields without a value are left out.",
        "required": ["reference", "propertyId", "roomId", "arrivalDate", "departureDate", "guest"],
        "properties": {
            "reference": {
                "type": "string",
                "description": "The forwarder's id of the request, to be kept with the reservation.",
            }
        }
        | fields
        | {"roomId": engine["properties"]["roomId"]},
    }
    used = {name: part for name, part in parts.items() if name not in ("Guest", "Address")}
    return {"ReservationRequest": request, "Reservation": _reservation(record), "Problem": _problem()} | used


def _schema(model: type[BaseModel], parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of `model`; those that it refers to are added to `parts`."""
    schema: dict[str, Any] = _tidy(model.model_json_schema(by_alias=True, ref_template=_REF + "{model}"))
    parts |= schema.pop("$defs", {})
    return schema


def _tidy(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, and without defaults of null, which say nothing."""
    if isinstance(schema, list):
        return [_tidy(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    noise = {"title"} if isinstance(schema.get("title"), str) else set()
    if schema.get("default", "") is None:
        noise.add("default")
    return {name: _tidy(part) for name, part in schema.items() if name not in noise}


def _reservation(record: dict[str, Any]) -> dict[str, Any]:
    own = {
        "id": {"type": ["string", "integer"], "description": "The PMS's own id of the reservation."},
        "reference": {"type": "string", "description": "As it was sent."},
        "status": {
            "enum": ["CONFIRMED", "REJECTED", "CANCELLED"],
            "default": "CONFIRMED",
            "description": "In any case of letters. Any other leaves the reservation in doubt.",
        },
    }
    return {
        "type": "object",
        "description": "A reservation. The forwarder's record takes the PMS's word for these fields; others may be there.",
        "required": ["id"],
        "properties": own | record["properties"],
    }


def _problem() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A problem (RFC 9457). `title` and `detail` are shown to the caller: no card or guest data in them.",
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {
                "type": "string",
                "description": "What programs may branch on; any other code counts as `pms_refused`.",
                "examples": [*REFUSALS, STILL_WORKING, KEY_REUSED],
            },
        },
    }
