"""The open PMS contract as OpenAPI 3.1: what a PMS implements to be reached as kind `generic` or `website-builder`. Pure.

Its schemas are built from the models that requests are validated with and answers are read with, so that they cannot drift apart.
Published as schemas/pms-openapi.json.
"""

from typing import Any, Final

from forwarder.pms.kinds.generic import NOT_THERE, NOTHING_DONE
from tools.contracts.pms_contract_schemas import REF, contract_schemas

_VERSION: Final = "1.1.0"

_ABOUT: Final = f"""\
What a property management system (PMS) implements so that the reservation forwarder can book in it.

The forwarder sends each reservation once, with an `Idempotency-Key`. When it cannot know whether a request took effect (a
time-out, a lost connection, a 5xx), it sends the same request with the same key again, for up to a day or more. So:

- the same key makes at most one reservation, for ever; a key that was seen before is answered 200 with the reservation as it was
  first answered, whatever has become of the room since;
- a request that comes while an earlier one with its key is still being worked on is answered 409 with code `request_in_progress`;
- a status of 200, 201, 409 or 422 is final, and so are 400 and 404 with a problem whose `code` is one of those listed here; 429
  and the rest of 4xx say that nothing was done, and the request comes again later; so does a 503 as `application/problem+json` with
  code `{NOTHING_DONE}`, to be answered only by the PMS itself, and only when it has not taken the request on; any other status,
  and a 503 without that code, which a gateway may send for a PMS that is at work, leaves the request in doubt.

A cancellation may come any number of times, for what was cancelled before and for what never was there. It comes again until it is
answered with one of the statuses listed for it.

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
        "paths": {"/reservations": {"post": _create(), "get": _find()}, "/reservations/{id}": {"delete": _cancel()}},
        "components": {
            "securitySchemes": {
                "credential": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The integration account's credential.",
                }
            },
            "schemas": contract_schemas(),
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
                "OutOfService": {
                    "description": "The request comes again, not before `Retry-After`. "
                    f"With code `{NOTHING_DONE}`, nothing was done; without it, the reservation may have been made.",
                    "headers": {"Retry-After": {"$ref": "#/components/headers/Retry-After"}},
                    "content": {"application/problem+json": {"schema": {"$ref": f"{REF}Problem"}}},
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
            "503": {"$ref": "#/components/responses/OutOfService"},
        },
    }


def _find() -> dict[str, Any]:
    answer = {
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"type": "array", "items": {"$ref": f"{REF}Reservation"}}},
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


def _cancel() -> dict[str, Any]:
    return {
        "operationId": "cancelReservation",
        "summary": "Cancel a reservation and free its nights",
        "parameters": [
            {
                "name": "id",
                "in": "path",
                "required": True,
                "description": "The PMS's own id of the reservation, as it answered it.",
                "schema": {"type": "string"},
            }
        ],
        "responses": {
            "204": {"description": "It is cancelled, now or since before."},
            "200": {
                "description": "The same, with the reservation in status CANCELLED.",
                "content": _json("Reservation"),
            },
            "401": {"$ref": "#/components/responses/NotLetIn"},
            "404": _refusal(
                f"There is none of that id. Final with a problem whose `code` is `{NOT_THERE}`; 410 likewise."
            ),
            "409": _refusal("No: it can not be cancelled any more. 422 likewise."),
            "429": {"$ref": "#/components/responses/Later"},
            "503": {"$ref": "#/components/responses/Later"},
        },
    }


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF + schema}}}


def _refusal(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/problem+json": {"schema": {"$ref": f"{REF}Problem"}}}}
